// Draws the loss of every step and its running mean. Owns: one canvas. Must not know: training.

const PAD = { left: 44, right: 10, top: 8, bottom: 24 };

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.values = [];
    this.queued = false;
    new ResizeObserver(() => this.queue()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.queue());
  }

  clear() {
    this.values = [];
    this.queue();
  }

  add(value) {
    this.values.push(value);
    this.queue();
  }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.draw();
    });
  }

  colour(name) {
    // A custom property with light-dark() resolves only where it is used as a colour.
    this.probe ??= this.canvas.parentElement.appendChild(document.createElement('i'));
    this.probe.style.color = `var(${name})`;
    return getComputedStyle(this.probe).color;
  }

  draw() {
    const scale = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext('2d');
    pen.scale(scale, scale);
    const finite = this.values.filter(Number.isFinite);
    const top = Math.max(0.1, ...finite) * 1.05;
    const steps = Math.max(20, this.values.length);
    const x = (i) => PAD.left + ((width - PAD.left - PAD.right) * i) / (steps - 1);
    const y = (v) => height - PAD.bottom - ((height - PAD.top - PAD.bottom) * v) / top;
    this.grid(pen, x, y, width, steps, top);
    this.line(pen, this.values, x, y, this.colour('--accent'), 0.35, 1);
    const mean = [];
    for (const value of this.values) mean.push(mean.length ? mean.at(-1) * 0.9 + value * 0.1 : value);
    this.line(pen, mean, x, y, this.colour('--accent'), 1, 2);
  }

  grid(pen, x, y, width, steps, top) {
    pen.strokeStyle = this.colour('--line');
    pen.fillStyle = this.colour('--faint');
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    for (let i = 0; i <= 4; i += 1) {
      const value = (top * i) / 4;
      pen.beginPath();
      pen.moveTo(PAD.left, y(value));
      pen.lineTo(width - PAD.right, y(value));
      pen.stroke();
      pen.fillText(value.toFixed(top < 1 ? 2 : 1), PAD.left - 8, y(value));
    }
    pen.textAlign = 'center';
    for (let i = 0; i <= 4; i += 1) {
      const step = Math.round(((steps - 1) * i) / 4);
      pen.fillText(String(step + 1), Math.min(x(step), width - 16), y(0) + 14);
    }
  }

  line(pen, values, x, y, colour, alpha, width) {
    pen.strokeStyle = colour;
    pen.globalAlpha = alpha;
    pen.lineWidth = width;
    pen.beginPath();
    values.forEach((value, i) => {
      if (Number.isFinite(value)) pen.lineTo(x(i), y(value));
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }
}
