// Loads Pyodide, the wheels and the tests, in a page or in a worker, then waits for orders.
// `wgburnReport` is a function that the rig adds: one string goes straight to the test process.

const report = (message) => globalThis.wgburnReport(JSON.stringify(message));

async function load() {
  const config = await (await fetch('/rig/config.json')).json();
  const times = {};
  let last = performance.now();
  const lap = (name) => {
    const now = performance.now();
    times[name] = now - last;
    last = now;
  };
  const { loadPyodide } = await import('/assets/pyodide/pyodide.mjs');
  const pyodide = await loadPyodide({
    indexURL: '/assets/pyodide/',
    stdout: (text) => report({ type: 'log', text }),
    stderr: (text) => report({ type: 'log', text }),
  });
  lap('pyodide');
  const silent = { messageCallback() {}, errorCallback: (text) => report({ type: 'log', text }) };
  await pyodide.loadPackage('numpy', silent);
  await pyodide.runPythonAsync('import numpy');
  lap('numpy');
  await pyodide.loadPackage(config.packages, silent);
  lap('packages');
  await pyodide.loadPackage(config.wheel, silent);
  lap('wgburn wheel');
  const files = await (await fetch('/rig/files.zip')).arrayBuffer();
  pyodide.unpackArchive(files, 'zip', { extractDir: config.folder });
  pyodide.globals.set('wgburn_folder', config.folder);
  await pyodide.runPythonAsync(`
import os, sys
os.chdir(wgburn_folder)
sys.path[:0] = [wgburn_folder + "/tests", wgburn_folder + "/examples"]
`);
  lap('files');
  globalThis.rig = {
    pyodide,
    report,
    /** Run Python where it may block; the value must be None, a number or a string. */
    python: (code) => pyodide.runPythonAsync(code),
    tests(request) {
      pyodide.globals.set('wgburn_request', request);
      return pyodide.runPythonAsync(
        'from browser.rig import inside\ninside.run(wgburn_request)',
      ).catch((error) => report({ type: 'broken', text: String(error) }));
    },
  };
  report({ type: 'ready', times, isolated: globalThis.crossOriginIsolated });
}

export const boot = () => load().catch((error) => report({ type: 'broken', text: String(error?.stack ?? error) }));
