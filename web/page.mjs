// The page: shows what the worker says and tells it what to do. Owns: the DOM. Must not know: Python.

import { Chart } from './chart.mjs';

const $ = (id) => document.getElementById(id);
const chart = new Chart($('chart'));
const worker = new Worker('./worker.mjs', { type: 'module' });
let training = false;

function status(text, state) {
  $('status').textContent = text;
  $('status').dataset.state = state;
}

function log(text) {
  const box = $('log');
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
  box.textContent += `${text}\n`;
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function controls(ready) {
  for (const id of ['device', 'batch', 'start']) $(id).disabled = !ready || training;
  $('stop').disabled = !training;
}

function fail(text) {
  training = false;
  status(text.trim().split('\n').at(-1), 'error');
  log(text);
  controls($('device').options.length > 0);
}

function showDigits({ pixels, labels, guesses }) {
  const side = 28;
  $('digits').replaceChildren(...labels.map((label, i) => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = side;
    const picture = new ImageData(side, side);
    for (let p = 0; p < side * side; p += 1) {
      picture.data.fill(255 - pixels[i][p], 4 * p, 4 * p + 3);
      picture.data[4 * p + 3] = 255;
    }
    canvas.getContext('2d').putImageData(picture, 0, 0);
    const caption = document.createElement('figcaption');
    const wrong = guesses[i] !== label;
    caption.textContent = wrong ? `${guesses[i]} (${label})` : String(label);
    const figure = document.createElement('figure');
    figure.classList.toggle('wrong', wrong);
    figure.append(canvas, caption);
    return figure;
  }));
}

const handlers = {
  status: ({ text }) => status(text, 'busy'),
  log: ({ text }) => log(text),
  error: ({ text }) => fail(text),
  ready({ devices }) {
    $('device').replaceChildren(...devices.map(({ value, name, available, reason }) => {
      const option = new Option(available ? name : `${name}: not available`, value);
      option.disabled = !available;
      if (!available) log(`${name}: ${reason}`);
      return option;
    }));
    const usable = devices.filter((device) => device.available);
    const best = usable.find((device) => device.value !== 'cpu') ?? usable[0];
    $('device').value = best.value;
    status(`ready on ${best.name}`, 'ready');
    controls(true);
  },
  step({ step, steps, loss, accuracy, rate }) {
    chart.add(loss);
    $('step').textContent = `${step}/${steps}`;
    $('loss').textContent = loss.toFixed(3);
    $('accuracy').textContent = `${(100 * accuracy).toFixed(1)} %`;
    $('rate').textContent = rate ? rate.toFixed(rate < 10 ? 1 : 0) : '–';
  },
  test(message) {
    $('test').textContent = `${(100 * message.accuracy).toFixed(1)} %`;
    showDigits(message);
  },
  done({ text }) {
    training = false;
    status(text, 'ready');
    controls(true);
  },
};

worker.onmessage = ({ data }) => handlers[data.type](data);
worker.onerror = (event) => fail(event.message ?? 'the worker could not start');

$('start').onclick = () => {
  training = true;
  chart.clear();
  for (const id of ['step', 'loss', 'accuracy', 'rate', 'test']) $(id).textContent = '–';
  status('preparing', 'busy');
  controls(true);
  worker.postMessage({
    type: 'train', device: $('device').value, batch: Number($('batch').value),
    steps: Number(new URLSearchParams(location.search).get('steps') ?? 0),
  });
};
$('stop').onclick = () => {
  $('stop').disabled = true;
  worker.postMessage({ type: 'stop' });
};
