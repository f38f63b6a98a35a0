// The worker: Pyodide, the wgburn wheel, the digits and training.py. Owns: loading and messages.
// config.json next to this file says where everything is; web/serve writes one.

const post = (message) => self.postMessage(message);
const say = (text) => post({ type: 'log', text });
let python = null;

async function timed(what, work) {
  post({ type: 'status', text: `loading ${what}` });
  const started = performance.now();
  const result = await work();
  say(`${what}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return result;
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: HTTP status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function load() {
  const config = await (await fetch('./config.json')).json();
  const { loadPyodide } = await import(`${config.pyodide}pyodide.mjs`);
  const pyodide = await timed('Pyodide', () => loadPyodide({
    indexURL: config.pyodide, stdout: say, stderr: say,
  }));
  const silent = { messageCallback() {}, errorCallback: say };
  await timed('packages', () => pyodide.loadPackage(config.packages, silent));
  await timed('wgburn', async () => {
    await pyodide.loadPackage(config.wheel, silent);
    for (const [name, url] of Object.entries(config.files)) {
      pyodide.FS.mkdirTree(name.slice(0, name.lastIndexOf('/')));
      pyodide.FS.writeFile(name, await fetched(url));
    }
    await pyodide.runPythonAsync('import sys; sys.path.insert(0, "/page"); import training');
  });
  python = pyodide.pyimport('training');
  post({ type: 'status', text: 'looking for devices' });
  const devices = JSON.parse(await python.devices());
  post({ type: 'ready', devices });
}

const failed = (error) => post({ type: 'error', text: String(error?.message ?? error) });

self.onmessage = ({ data }) => {
  if (data.type === 'stop') python.stop();
  else {
    python.train(data.device, data.batch, data.steps, (json) => post(JSON.parse(json))).catch(failed);
  }
};

load().catch(failed);
