// What the operators' console does in the browser beyond htmx. Pages work without it; then nothing changes by itself.
// As a module it is strict, and its names are its own.

const HOUR = 3600;
/** Time after which a page in the background receives no values, in milliseconds. */
const PAUSED_AFTER = 30_000;
/** Shortest time that a plot shows. */
const SPAN_MIN = 600;
const WORDS = {
  live: 'Live',
  paused: 'Paused while in use',
  problem: 'No current values',
  reconnecting: 'Reconnecting',
  'signed-out': 'Signed out',
};

const root = document.documentElement;
root.classList.add('js');

const on = (event, act) => document.addEventListener(event, act);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const color = (name) => getComputedStyle(root).getPropertyValue(name);
const format = new Intl.NumberFormat('en', { maximumFractionDigits: 3 });
const number = (value) => (value == null ? '\u2013' : format.format(value).replaceAll(',', '\u202f'));
const timeOfDay = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

// The state of the connection.

let isSignedOut = false;
const known = new WeakSet();

function show(state) {
  for (const line of all('[data-live-status]')) {
    if (line.dataset.state === state) continue;
    line.dataset.state = state;
    line.textContent = WORDS[state];
  }
}

function signOut() {
  if (isSignedOut) return;
  isSignedOut = true;
  show('signed-out');
  location.assign(`/console/sign-in?expired=1&next=${encodeURIComponent(location.pathname + location.search)}`);
}

/** Asks why a connection was refused: an EventSource does not tell. */
async function diagnose(url) {
  const abort = new AbortController();
  const options = { redirect: 'manual', cache: 'no-store', signal: abort.signal };
  const answer = await fetch(url, options).catch(() => null);
  if (answer?.type === 'opaqueredirect' || answer?.status === 401) signOut();
  abort.abort();
}

// A page in the background receives no values: browsers have few connections to a host.

let current;
let pausing;

// What the fields of forms contained at first.
const entered = new Map(all('input, textarea').map((input) => [input, input.value]));
const isChanged = () => [...entered].some(([input, value]) => input.isConnected && input.value !== value);

function pause() {
  clearTimeout(pausing);
  if (document.hidden) pausing = setTimeout(() => current?.close(), PAUSED_AFTER);
  else if (current?.readyState === EventSource.CLOSED) {
    if (isChanged()) show('problem');
    else location.replace(location.href);
  }
}
on('visibilitychange', pause);
pause();

on('htmx:sseOpen', ({ detail: { source } }) => {
  current = source;
  show('live');
  if (known.has(source)) return;
  known.add(source);
  source.addEventListener('plot', ({ data }) => append(JSON.parse(data)));
  source.addEventListener('problem', () => show('problem'));
  source.addEventListener('signed-out', () => {
    source.close();
    signOut();
  });
});
on('htmx:sseError', ({ detail: { source } }) => {
  if (isSignedOut) return;
  show('reconnecting');
  if (source.readyState === EventSource.CLOSED) diagnose(source.url);
});

// Regions: what an operator selects or fills in is not replaced; the focus and the position of tables stay.

const waiting = new Map();
const places = new WeakMap();
const focusable = (region) => all('a[href], button, summary, [tabindex]', region);

function isInUse(region) {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && region.contains(selection.anchorNode);
  return isSelected || region.querySelector('input:focus, select:focus, textarea:focus');
}

on('htmx:sseBeforeMessage', (event) => {
  const { elt: region, data } = event.detail;
  if (isInUse(region)) {
    waiting.set(region, data);
    show('paused');
    event.preventDefault();
  } else {
    waiting.delete(region);
    const scrolled = all('.table-region', region).map((table) => table.scrollLeft);
    places.set(region, { scrolled, focused: focusable(region).indexOf(document.activeElement) });
  }
});
on('htmx:sseMessage', ({ detail: { elt: region } }) => {
  if (!waiting.size) show('live');
  const { scrolled, focused } = places.get(region);
  all('.table-region', region).forEach((table, index) => (table.scrollLeft = scrolled[index]));
  focusable(region)[focused]?.focus({ preventScroll: true });
});

function resume() {
  for (const [region, data] of waiting) {
    if (isInUse(region)) continue;
    waiting.delete(region);
    htmx.swap(region, data, { swapStyle: 'innerHTML' });
    if (!waiting.size) show('live');
  }
}
on('selectionchange', resume);
on('focusout', () => setTimeout(resume));

// Plots.

const plots = new Map();
const sizeOf = ({ area }) => ({ width: area.clientWidth, height: area.clientHeight });
const dashesOf = (key) => key.getAttribute('stroke-dasharray')?.match(/\d+/g)?.map(Number);

function options(plot) {
  const line = { width: 1, size: 5, stroke: () => color('--line') };
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { font, stroke: () => color('--muted'), grid: line, ticks: line };
  const times = (_, splits, __, ___, step) => splits.map((at) => timeOfDay(at).slice(0, step < 60 ? 8 : 5));
  const width = (_, labels) => Math.max(4, ...(labels ?? []).map((label) => label.length)) * 7.5 + 14;
  return {
    ...sizeOf(plot),
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
    legend: { show: false },
    cursor: { y: false, drag: { x: false } },
    scales: {
      x: { range: (_, min, max) => (min == null ? [0, SPAN_MIN] : [Math.min(min, max - SPAN_MIN), max]) },
      y: { range: (_, min, max) => [Math.min(0, min), max > 0 ? max * 1.1 : 1] },
    },
    axes: [{ ...axis, values: times, size: 30 }, { ...axis, values: (_, splits) => splits.map(number), size: width }],
    series: [
      {},
      ...plot.dashes.map((dash, index) => ({
        stroke: () => color(`--series-${index}`),
        width: 2,
        dash,
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [() => describe(plot)] },
  };
}

/** Writes the values at the cursor, or the latest ones. */
function describe({ chart, data: [times, ...values], words, time }) {
  const index = chart?.cursor.idx ?? times.length - 1;
  if (index < 0) return;
  words.forEach((word, series) => (word.textContent = number(values[series][index])));
  time.textContent = `At ${timeOfDay(times[index])} UTC`;
}

function draw(figure) {
  const plot = {
    area: figure.querySelector('.plot-area'),
    dashes: all('.plot-key path', figure).map(dashesOf),
    words: all('[data-value]', figure),
    time: figure.querySelector('[data-time]'),
    data: JSON.parse(figure.querySelector('script').textContent),
  };
  plots.set(figure.dataset.plot, plot);
  plot.chart = new uPlot(options(plot), plot.data, plot.area);
  new ResizeObserver(() => plot.chart.setSize(sizeOf(plot))).observe(plot.area);
}

function append({ name, t, values }) {
  const plot = plots.get(name);
  const times = plot?.data[0];
  if (!plot || t <= times.at(-1)) return;
  [t, ...values].forEach((value, column) => plot.data[column].push(value));
  const kept = times.findIndex((at) => at >= t - HOUR);
  plot.data.forEach((column) => column.splice(0, kept));
  plot.chart.setData(plot.data);
  describe(plot);
}

if (window.uPlot) {
  all('[data-plot]').forEach(draw);
  const redraw = () => plots.forEach(({ chart }) => chart.redraw());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

// Copying.

on('click', async ({ target }) => {
  const button = target.closest('[data-copy]');
  if (!button) return;
  const code = button.parentElement.querySelector('code');
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Without TLS there is no clipboard; a selection can be copied.
    getSelection().selectAllChildren(code);
    if (!document.execCommand('copy')) return;
    getSelection().removeAllRanges();
  }
  button.textContent = 'Copied';
  setTimeout(() => (button.textContent = 'Copy'), 1500);
});

// Confirmations, and forms sent only once.

const isConfirmed = ({ type, checked, value, dataset }) =>
  type === 'checkbox' ? checked : value.trim() === dataset.confirm;

function confirm(form) {
  const inputs = all('[data-confirm]', form);
  const isDisabled = !inputs.every(isConfirmed);
  if (inputs.length) all('[type=submit]', form).forEach((button) => (button.disabled = isDisabled));
}

on('input', ({ target }) => target.form && confirm(target.form));
on('submit', (event) => {
  const { target: form, submitter } = event;
  if (form.method !== 'post') return;
  if (form.ariaBusy) event.preventDefault();
  for (const busy of [form, submitter]) if (busy) busy.ariaBusy = 'true';
});
addEventListener('pageshow', () => {
  for (const form of document.forms) {
    for (const busy of [form, ...form]) busy.ariaBusy = null;
    confirm(form);
  }
});
