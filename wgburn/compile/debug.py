"""What WGBURN_DEBUG prints of a new plan: 1 a line a plan, 2 its kernels, 3 their WGSL, 4 its
launches.

Owns: texts on stderr. Must not know: devices, how a plan came about.
"""

from __future__ import annotations

import sys

from .plan import Plan


def show(level: int, device: str, plan: Plan) -> None:
    """Print a plan that was just made."""
    lines = [
        f"wgburn: plan on {device}: {len(plan.steps)} kernels, "
        f"{len(plan.launches.programs)} programs, {plan.leaves} leaves, "
        f"{sum(plan.launches.pages)} bytes of scratch memory, {len(plan.outputs)} outputs"
    ]
    for k, (s, launch) in enumerate(zip(plan.steps, plan.launches.launches, strict=True)):
        if level >= 2:
            lines.append(f"  {k:3} {s.program.name}: {' '.join(s.ops)}")
            lines.append(
                f"      {', '.join(s.reads)} -> {', '.join(s.writes)}; {s.bytes} bytes; {s.why}"
            )
        if level >= 3:
            lines.append("      | " + s.program.wgsl.replace("\n", "\n      | "))
        if level >= 4:
            fields = ", ".join(
                f"{p.name}={'slot ' + str(p.slot) if p.slot >= 0 else p.value}" for p in s.params
            )
            lines.append(f"      grid {launch.grid}, slots {launch.slots}, params {fields}")
    print("\n".join(lines), file=sys.stderr)
