// Draws a run: the data in the page itself (report.html), or what the collector sends once a second (/events). The structure of
// the data is defined in mod.rs next to this file. `of` is a part of it, such as a device, a lane or a table. Names come from an
// application, so they are only inserted as text.
'use strict';
(function () {
  const $ = id => document.getElementById(id);
  let page = null, tables = null;

  // ---- words and numbers ----

  // Figures have the digits of crates/model/src/digits.rs. The figures of a column have as many decimals as the largest of them.
  function figure(value, largest = value) {
    if (value == null) return '?';
    const digits = page.run.energy === 'estimated' ? 3 : 4, size = Math.abs(value);
    const places = Math.min(3, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(largest).toPrecision(digits)))));
    if (size === 0) return '0';
    return size < 0.5 * 10 ** -places ? `<${(10 ** -places).toFixed(places)}` : (size < 10 ** digits ? value : +value.toPrecision(digits)).toFixed(places); // rounded only once
  }
  const share = (part, whole) => (whole > 0 ? 100 * part / whole : 0).toFixed(1) + ' %';
  // A share is a part of all joules of the run, or of its dynamic joules. The head of the column, or the words next to the
  // share, state which.
  const OF_TOTAL = 'of total', OF_DYNAMIC = 'of dynamic', OF_TIME = 'of time';
  const watts = value => figure(value) + ' W';
  const count = value => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
  // Calls of sampled functions are not counted. Calls of recorded functions are counted, but samples show which functions made
  // them. So a call path can have joules of calls that are counted at another call path.
  const countOfCalls = value => value == null ? '' : value === 0 ? 'sampled' : count(value);
  const countOfPath = (value, name) => value === 0 && counted.has(name) ? 'path sampled' : countOfCalls(value);
  const PATH_CALLS = '“path sampled”: samples tell which functions called it; its calls are counted at another path of the same function';
  function duration(seconds) {
    if (seconds < 120) return seconds.toFixed(seconds < 10 ? 2 : 1) + ' s';
    const whole = Math.floor(seconds), minutes = Math.floor(whole / 60) % 60;
    return whole >= 3600 ? `${Math.floor(whole / 3600)} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
  }
  // Shows 2026-01-02T03:04:05.678Z without the parts that are the same as in the first time.
  function moments(...dates) {
    const words = dates.map(date => date.replace(/\.\d+/, '').replace('Z', '').split('T'));
    return words.map(([day, time], at) => at && day === words[0][0] ? time : `${day} ${time}`);
  }
  // Shows 12345678 J as 12.3 MJ.
  function large(value) {
    const steps = ['', 'k', 'M', 'G', 'T'], rounded = +value.toPrecision(3);
    const step = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.abs(rounded) || 1) / 3))), scaled = rounded / 1000 ** step;
    return [scaled.toFixed(Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(scaled) || 1))))), steps[step] + 'J'];
  }
  const name = number => tables.names[number];
  // Long names are shown without arguments and namespaces. The whole name is in the title of its element, and a search finds it.
  const shorts = new Map();
  const brief = words => shorts.get(words) ?? words;
  const clip = (text, longest) => text.length <= longest ? text : text.slice(0, longest - 1) + '…';

  // ---- elements ----

  function element(tag, attributes, ...inside) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
    }
    made.append(...inside);
    return made;
  }
  const fill = (id, ...inside) => (typeof id === 'string' ? $(id) : id).replaceChildren(...inside);
  // Elements are changed each second and not replaced, because they can contain the focus, a selection or the position of a
  // screen reader.
  function update(id, ...inside) {
    const at = typeof id === 'string' ? $(id) : id, wanted = inside.map(of => typeof of === 'string' ? document.createTextNode(of) : of);
    while (at.childNodes.length > wanted.length) at.lastChild.remove();
    wanted.forEach((next, place) => {
      const old = at.childNodes[place];
      if (!old) at.append(next);
      else if (old.nodeName !== next.nodeName) old.replaceWith(next);
      else if (old.nodeType === Node.TEXT_NODE) { if (old.data !== next.data) old.data = next.data; }
      else if (!old.isEqualNode(next)) {
        for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
        for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
        update(old, ...next.childNodes);
      }
    });
  }
  function text(id, words) { const at = $(id); if (at.textContent !== words) at.textContent = words; }
  const show = (id, is) => { $(id).hidden = !is; };
  const colours = {};
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const key of ['card', 'line', 'text', 'soft', 'accent', 'bar', 'function', 'mpi', 'kernel', 'rest', 'match', 'waited', 'caused', 'ink', 'focus', 'heat-0', 'heat-1', 'heat-2', 'heat-3'])
      colours[key] = style.getPropertyValue('--' + key).trim();
    colours.size = parseFloat(style.fontSize);
    colours.isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  }
  const series = () => colours.isDark
    ? ['#f5b041', '#5dade2', '#58c48a', '#e98ac9', '#e8e15c', '#f08a5d', '#9aa0ff', '#aab2ba']
    : ['#c2570c', '#1668b3', '#16794a', '#a8327f', '#8a7400', '#c23b3b', '#5a50c7', '#5f666e'];
  function hash(words) {
    let value = 0;
    for (let at = 0; at < words.length; at++) value = (value * 31 + words.charCodeAt(at)) >>> 0;
    return (value % 97) / 97;
  }
  // The same name always has the same shade. Names in the legend of the lanes have shades that can be distinguished.
  const shades = { mpi: new Map(), kernel: new Map(), function: new Map() };
  function boxColour(kind, words) {
    const shade = shades[kind]?.get(words) ?? hash(words), light = colours.isDark ? -10 : 0;
    if (kind === 'mpi') return `hsl(${205 + 15 * shade} 58% ${69 + 8 * shade + light}%)`;
    if (kind === 'kernel') return `hsl(${95 + 40 * shade} 42% ${65 + 8 * shade + light}%)`;
    if (kind === 'function') return `hsl(${14 + 40 * shade} 82% ${60 + 16 * (5 * shade % 1) + light}%)`;
    return colours.rest;
  }
  const isMpi = new Set(), counted = new Set();
  // The current functions of ranks can have names that are not in the tables.
  const kindOf = words => /^(P?MPI_|mpi_)/.test(words) ? 'mpi' : 'function';

  // Makes a canvas of this height in CSS pixels, with the resolution of the screen.
  function canvas(id, height) {
    const at = $(id), ratio = window.devicePixelRatio || 1, width = Math.max(1, at.clientWidth || at.parentNode.clientWidth);
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (at.width !== pixels[0] || at.height !== pixels[1]) { at.width = pixels[0]; at.height = pixels[1]; at.style.height = height + 'px'; }
    const draw = at.getContext('2d');
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.clearRect(0, 0, width, height);
    draw.textBaseline = 'middle';
    return { draw, width, height };
  }
  function tip(event, words) {
    const at = $('tip');
    at.hidden = !words;
    if (!words) return;
    at.textContent = words;
    const width = at.offsetWidth, height = at.offsetHeight;
    at.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 6)) + 'px';
    at.style.top = (event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 12) : event.clientY + 18) + 'px';
  }
  const say = words => text('said', words);
  // If a picture has the keyboard focus, a screen reader would read each new name, so the picture keeps its old name.
  function describe(id, attributes) {
    const at = $(id);
    if (document.activeElement === at && at.hasAttribute('aria-label')) return;
    for (const [key, value] of Object.entries(attributes)) at.setAttribute(key, value);
  }
  // The text that a screen reader reads for the position of the arrow keys in a picture. Texts of earlier positions are kept
  // while the picture has the focus: if one is removed, some readers read the whole picture again.
  let places = 0;
  function read(id, make) {
    const at = $(id), place = `place-${++places}`;
    if (document.activeElement !== at) fill(at);
    at.append(make(place));
    at.setAttribute('aria-activedescendant', place);
  }

  // ---- tables that sort and search ----

  // Titles as words, for screen readers.
  const UNIT_NAMES = { J: 'joules', s: 'seconds', W: 'watts', 'inclusive J': 'inclusive joules', 'dynamic J': 'dynamic joules', 'inclusive dynamic J': 'inclusive dynamic joules', 'mean W': 'mean watts', 'most W': 'most watts', 'now W': 'watts now', 'waited J': 'joules waited', 'caused J': 'joules of waiting caused', '±': 'standard error' };

  // In tables of functions, the first rows are those with at least this part of the total.
  const FIRST_ROWS = 15, MORE_ROWS = 100, PART_MIN = 0.001;
  // A row with this part of all joules is always shown: a function that waits has hardly any dynamic ones.
  const KEPT_PART_MIN = 0.05;
  // columns: {key, title, show(row) -> text or node, number, minor, where, cell}. A row is an object. `where`: a class; its
  // column is only shown in tables that are wide enough according to the style. The table of a device has all columns, because it
  // is as wide as the page.
  const classOf = (column, row) => [column.number && 'number', column.minor && 'minor', column.where, row && column.kind && column.kind(row)].filter(Boolean).join(' ');
  // The share that a row shows, which is of the dynamic joules where they are known, and otherwise of all joules.
  const shareOf = row => 'share' in row ? (row.share ?? 0) / 100 : row.part || 0;
  function table(place, columns, options) {
    const state = { rows: [], sort: options.sort || columns[0].key, down: true, search: '', limit: options.limit || FIRST_ROWS };
    const heads = new Map(), body = element('tbody'), more = element('button', { class: 'more', onclick: () => { state.limit += MORE_ROWS; draw(); } });
    const head = element('tr');
    for (const column of columns) {
      const cell = element('th', { scope: 'col', class: classOf(column) || null, title: column.help });
      if (column.key === '') cell.append(element('span', { class: 'hidden' }, 'bar'));
      else cell.append(element('button', { type: 'button', 'aria-label': UNIT_NAMES[column.title], onclick: () => {
        state.down = state.sort === column.key ? !state.down : !!column.number;
        state.sort = column.key;
        draw();
      } }, column.title));
      heads.set(column.key, cell);
      head.append(cell);
    }
    const whole = element('table', {}, element('caption', { class: 'hidden' }, options.caption), element('thead', {}, head), body);
    fill(place, whole, more);
    function draw() {
      const search = state.search.toLowerCase(), sort = state.sort, sign = state.down ? -1 : 1;
      let rows = search ? state.rows.filter(row => row.words.toLowerCase().includes(search)) : state.rows.slice();
      rows.sort((a, b) => a.last - b.last || sign * (typeof a[sort] === 'string' ? a[sort].localeCompare(b[sort]) : (a[sort] ?? -1) - (b[sort] ?? -1)));
      for (const [key, cell] of heads) key === sort ? cell.setAttribute('aria-sort', state.down ? 'descending' : 'ascending') : cell.removeAttribute('aria-sort');
      // The rows idle and lost are always shown.
      const last = rows.filter(row => row.last), of = rows.length - last.length;
      // Up to three further rows get no button. In a search, and in another order, small rows are shown like all others.
      const isSmall = row => row.part < PART_MIN && !row.last, isByJoules = sort === (options.sort || 'joules') && state.down && !search;
      const first = options.large && isByJoules && state.limit === FIRST_ROWS ? Math.min(FIRST_ROWS, of - rows.filter(isSmall).length || FIRST_ROWS) : state.limit;
      const limit = of <= first + 3 ? of : first, isKept = row => isByJoules && row.part >= KEPT_PART_MIN, hidden = rows.slice(limit, of).filter(row => !isKept(row)), shown = rows.slice(0, limit).concat(rows.slice(limit, of).filter(isKept), last);
      const widest = state.rows.reduce((most, row) => Math.max(most, row.part || 0), 0) || 1;
      const largest = columns.map(column => state.rows.reduce((most, row) => Math.max(most, Math.abs(row[column.key]) || 0), 0));
      // A live table changes its cells, but not its rows, to keep the selection and the focus.
      while (body.rows.length > shown.length) body.deleteRow(-1);
      shown.forEach((row, at) => {
        const line = body.rows[at] || body.insertRow();
        line.className = row.last ? 'rest' : '';
        columns.forEach((column, number) => {
          const cell = line.cells[number] || line.insertCell();
          if (column.key === 'words') cell.setAttribute('role', 'rowheader');
          const kind = classOf(column, row);
          if (cell.className !== kind) cell.className = kind;
          if (column.bar !== undefined) {
            const bar = cell.firstChild || cell.appendChild(element('div'));
            bar.style.width = Math.min(100, Math.max(0, 100 * row.part / widest)).toFixed(1) + '%';
            // The bar has two shades: the dynamic joules, and the static ones, which are a part of what the device draws anyway.
            const own = row.dynamic_joules == null ? 100 : row.joules > 0 ? Math.min(100, 100 * row.dynamic_joules / row.joules) : 0;
            bar.style.background = own < 100 ? `linear-gradient(to right, var(--bar) ${own.toFixed(1)}%, var(--static) ${own.toFixed(1)}%)` : '';
            cell.setAttribute('aria-label', (100 * row.part).toFixed(1) + ' %' + (row.dynamic_joules == null ? '' : `, ${own.toFixed(0)} % of it dynamic`));
            return;
          }
          const words = column.show ? column.show(row, largest[number]) : row[column.key];
          if (cell.textContent !== words) cell.textContent = words;
          if (column.number && row[column.key] != null) cell.dataset.value = row[column.key];
          if (column.title_of) cell.title = column.title_of(row);
        });
      });
      more.hidden = !hidden.length;
      const sum = of => hidden.reduce((sum, row) => sum + (of(row) || 0), 0), own = options.sort || 'joules';
      const unit = (own === 'dynamic_joules' ? 'dynamic ' : '') + options.large;
      more.textContent = `Show more (${count(hidden.length)}${options.large ? `: ${own === 'dynamic_joules' ? `${figure(sum(row => row.joules))} ${options.large}, ` : ''}${figure(sum(row => row[own]))} ${unit}, ${(100 * sum(shareOf)).toFixed(1)} %` : ''})`;
    }
    return {
      set(rows) { state.rows = rows; draw(); },
      // Shows the rows that contain these words. Returns their number.
      search(words) { state.search = words; draw(); return state.rows.filter(row => row.words.toLowerCase().includes(words.toLowerCase())).length; },
    };
  }
  const number = (key, title, form, more) => ({ key, title, number: true, show: (row, largest) => row[key] == null ? row.last ? '' : '?' : form(row[key], largest), ...more });
  const BAR = { key: '', title: '', bar: true, kind: () => 'share' };
  const STATIC = 'The lighter part of a bar is static: what the devices draw anyway. The full part is dynamic: what was used above that.';
  const RANGE_HEAD = '(least..most)', RANGE = RANGE_HEAD + ': the joules of samples in which nothing else ran, and of all samples in which it ran at all';
  // An error as large as its figure is left out, because it shows only that the figure is tiny.
  const errorOf = part => part < 0.0005 ? '<0.1 %' : part >= 1 ? '' : (100 * part).toFixed(1) + ' %';
  const ERROR = '±: the standard error of the joules of a sampled function, whose calls are not counted';

  const IDLE = 'idle: in no function', OTHER_JOBS = 'other jobs on the node';
  // Functions are sorted by their dynamic joules, or by all of their exclusive joules if the dynamic ones are not known.
  const orderOf = of => of.dynamic_joules && of.dynamic_joules.length ? { sort: 'dynamic_joules' } : {};

  const WAITED = 'the part of all joules, static and dynamic, that was used while waiting for other ranks in MPI', CAUSED = 'the joules that other ranks used while waiting for this';
  // `isEmpty`: whether a row has no such figures.
  const waitColumns = isEmpty => [['waited_joules', 'waited J', WAITED], ['caused_waiting_joules', 'caused J', CAUSED]]
    .map(([key, title, help]) => number(key, title, figure, { minor: true, where: 'in-middle', help, show: (row, largest) => isEmpty(row) || !row[key] ? '' : figure(row[key], largest) }));

  // Sampled rows have no bounds.
  const hasBounds = of => !of.sampled_error_joules.length || of.sampled_error_joules.slice(0, FIRST_ROWS).some((error, at) => error == null && of.most_joules[at] > 0);

  // Columns of functions or kernels; a column without data is left out.
  function rowColumns(of, what, unit, base) {
    const has = key => of[key] && of[key].length > 0, hasWaits = has('waited_joules');
    // If there are columns of waiting, other columns are shown only in wider tables.
    const wide = hasWaits ? { where: 'in-wide' } : {};
    const columns = [number('joules', unit, figure, { minor: has('dynamic_joules'), ...(has('dynamic_joules') ? wide : {}), help: has('dynamic_joules') ? 'all joules: static and dynamic' : null })];
    // The bar shows all joules. If dynamic joules are known, it follows the column of all joules and is left out with it;
    // otherwise it follows the column of shares.
    if (has('dynamic_joules')) columns.push({ ...BAR, ...wide });
    if (has('dynamic_joules')) columns.push(number('dynamic_joules', 'dynamic ' + unit, figure, { help: STATIC, show: (row, largest) => row.dynamic_joules == null ? '' : figure(row.dynamic_joules, largest) }));
    const hasErrors = has('sampled_error_joules'), hasRanges = has('most_joules') && hasBounds(of);
    const known = row => {
      if (row.last) return '';
      if (row.sampled_error_joules != null) return row.joules === 0 ? '' : errorOf(row.sampled_error_joules / row.joules);
      return !hasRanges ? '' : row.most_joules == null ? '?' : `(${figure(row.least_joules, row.most_joules)}..${figure(row.most_joules)})`;
    };
    if (hasErrors || hasRanges) columns.push(number('known', hasErrors ? hasRanges ? '± or range' : '±' : RANGE_HEAD, figure, { minor: true, ...(hasRanges ? { where: what === 'kernel' ? 'in-roomy' : 'in-middle' } : {}), help: [hasErrors && ERROR, hasRanges && RANGE].filter(Boolean).join('; '), show: known }));
    columns.push({ ...number('share', base[0], value => value.toFixed(1) + ' %', { help: base[1], show: row => row.share == null ? '' : row.share.toFixed(1) + ' %' }) }, ...(has('dynamic_joules') ? [] : [BAR]));
    if (has('inclusive_joules')) columns.push(number('inclusive_joules', 'inclusive ' + unit, figure, { minor: true, where: hasWaits || hasRanges ? 'in-roomy' : 'in-middle' }));
    if (hasWaits) columns.push(...waitColumns(row => row.last));
    if (what === 'kernel' && has('seconds') && unit === 'J') columns.push(number('mean_watts', 'mean W', figure, { help: 'the joules of the kernel, divided by the time that it ran', show: (row, largest) => row.mean_watts == null ? '' : figure(row.mean_watts, largest) }));
    if (has('seconds')) columns.push(number('seconds', 's', figure, { minor: true, ...(has('dynamic_joules') || hasWaits ? { where: 'in-middle' } : {}) }));
    if (has('calls')) columns.push(number('calls', 'calls', countOfCalls, { minor: true, ...wide }));
    if (has('watts')) columns.push(number('watts', has('dynamic_joules') ? 'dynamic W' : 'W', figure, { minor: true, show: (row, largest) => row.last ? '' : row.watts == null ? 'below res.' : figure(row.watts, largest), help: (has('dynamic_joules') ? 'the device\'s power above its baseline while nothing else was active' : 'the device\'s power while nothing else ran') + '; below res.: too few samples, or too small a part of its time, belonged to it alone' }));
    columns.push({ key: 'words', title: what, kind: row => 'name' + (isMpi.has(row.words) || page.job && kindOf(row.words) === 'mpi' ? ' mpi' : ''), show: row => brief(row.words), title_of: row => row.words });
    return columns;
  }
  // The joules that no Python function is known to have used: those of a library's own threads, and those of functions whose
  // callers were not found.
  function outsidePython({ functions, python }) {
    const sum = values => values.reduce((all, value) => all + value, 0);
    const left = (key, others) => Math.max(0, sum(functions[key] || []) + others - sum(python[key]));
    return { joules: left('joules', functions.others.joules), dynamic_joules: python.dynamic_joules && left('dynamic_joules', 0) };
  }
  // `dynamic`: the dynamic joules of all rows and of idle time. If they are known, shares are parts of `of_dynamic`, and
  // otherwise of `whole`.
  function rowsOf(of, whole, idle, others, lost, dynamic, of_dynamic = dynamic) {
    const keys = ['dynamic_joules', 'sampled_error_joules', 'least_joules', 'most_joules', 'inclusive_joules', 'seconds', 'calls', 'waited_joules', 'caused_waiting_joules', 'watts'].filter(key => of[key] && of[key].length);
    const rows = of.name.map((at, index) => {
      const row = { words: of.words ? of.words[index] : name(at), joules: of.joules[index], last: 0 };
      for (const key of keys) row[key] = of[key][index];
      if (row.seconds > 0) row.mean_watts = row.joules / row.seconds;
      row.known = row.sampled_error_joules ?? (row.most_joules == null ? null : row.most_joules - row.least_joules);
      return row;
    });
    const rest = (value, words) => { if (value > 0) { const row = { words, joules: value, last: 1 }; rows.push(row); } };
    if (of.others && of.others.count) rest(of.others.joules, `${count(of.others.count)} more in summary.json`);
    if (of.rest > 0.0005 * whole) rest(of.rest, 'others, with less on each node');
    if (of.elsewhere && of.elsewhere.joules > 0.0005 * whole) {
      rest(of.elsewhere.joules, 'called by no known Python function');
      rows.at(-1).dynamic_joules = of.elsewhere.dynamic_joules;
    }
    rest(idle - others, IDLE);
    rest(others, OTHER_JOBS);
    rest(lost, 'lost: cannot be attributed');
    for (const row of rows) { row.part = whole > 0 ? row.joules / whole : 0; row.share = 100 * row.part; }
    if (of.dynamic_joules && of.dynamic_joules.length && dynamic != null) {
      const left = Math.max(0, dynamic - others - of.dynamic_joules.reduce((sum, value) => sum + value, 0));
      for (const row of rows) {
        // Dynamic joules that are in no row are idle, unless there are functions without a row.
        if (row.words === IDLE && !(of.others && of.others.count)) row.dynamic_joules = Math.min(row.joules, left);
        if (row.words === OTHER_JOBS) row.dynamic_joules = row.joules;
        row.share = row.dynamic_joules == null ? null : of_dynamic > 0 ? 100 * row.dynamic_joules / of_dynamic : 0;
      }
    }
    return rows;
  }
  // The table of each element. Its columns depend on the data, so it is made again if they change.
  const made = new Map();
  function tableOf(id, columns, options) {
    const form = columns.map(column => column.key).join();
    const known = made.get(id);
    if (known && known.form === form) return known.table;
    const at = table(typeof id === 'string' ? $(id) : id, columns, options);
    made.set(id, { form, table: at });
    return at;
  }

  // ---- head ----

  const STATES = { running: ['running', 'pill live'], over: ['complete', 'pill'], incomplete: ['INCOMPLETE', 'pill bad'], lost: ['connection lost', 'pill bad'] };
  function setState(state) {
    let [words, kind] = STATES[state];
    const status = state !== 'lost' && page.run.bad_status && `ended with status ${page.run.bad_status}`;
    if (status) [words, kind] = [state === 'over' ? status : `${words}, ${status}`, STATES.incomplete[1]];
    text('state', state === 'running' && !isLive ? 'RUNNING when written' : words);
    $('state').className = kind;
  }
  // Keeps a number and its unit on the same line.
  const together = words => words.replace(/(\d) (%|(?:[kMm]?J|Wh|k?W|m?s)\b)/g, '$1\u00a0$2');
  // `SERIES_MAX` in mod.rs: the greatest number of devices with a curve.
  const FIRST_NOTES = 4, SERIES_MAX = 64;
  function drawHead() {
    const run = page.run, totals = page.totals;
    setState(page.state);
    show('energy', run.energy !== 'measured' && run.energy !== '');
    text('energy', run.energy);
    text('command', run.command.join(' '));
    const job = run.job ? `, job ${run.job}` : '', when = run.start ? (page.state === 'running' ? `, since ${moments(run.start)[0]}` : `, ${moments(run.start, run.end).join(' to ')}`) + ' UTC' : '';
    const ranks = !page.job && run.who || (run.ranks === 0 ? '' : `${count(run.ranks)} rank${run.ranks === 1 ? '' : 's'}`);
    text('about', `${ranks ? ranks + ' ' : ''}on ${run.nodes}${when}, run ${run.id}${job}${run.cpu ? '; ' + run.cpu : ''}`);
    document.title = 'ampere: ' + (clip(run.command.join(' '), 80) || run.id);
    const [energy, unit] = large(totals.joules);
    // Devices may have been read for times of different lengths, so the mean power is the sum of the devices' mean powers.
    const isWhole = !gathered() && page.power.length < SERIES_MAX && page.power.every(of => of.mean_watts != null);
    const mean = isWhole && page.power.length ? page.power.reduce((sum, of) => sum + of.mean_watts, 0) : run.seconds > 0 ? totals.joules / run.seconds : null;
    const bad = page.quality.concat(page.monitor).filter(fact => fact.warns), notes = page.notes.length;
    const labels = bad.map(fact => fact.label).filter(words => words !== 'energy'), isIncomplete = words => words === 'incomplete';
    // Shares of functions are of the dynamic joules where these are known, here as in the table and in the sentences.
    const own = gathered() ? null : tables?.dynamic_joules, { name: rows, dynamic_joules: dynamic } = tables?.functions ?? {};
    const ofMpi = own == null ? totals.mpi_joules : rows.reduce((sum, at, row) => sum + (isMpi.has(name(at)) ? dynamic[row] : 0), 0);
    const tiles = [
      ['joules', 'Energy', energy, unit, !gathered() && tables && tables.dynamic_joules != null ? `${figure(tables.dynamic_joules)} J dynamic` : figure(totals.joules) + ' J', totals.joules],
      ['watts', 'Power', figure(totals.watts ?? mean), 'W', totals.watts == null ? 'mean of the run' : `now; ${watts(mean)} on average`, totals.watts ?? mean],
      ['seconds', 'Time', duration(run.seconds), '', `${ranks}${page.job ? ` on ${count(page.job.nodes.length + page.job.other_nodes.count)} nodes` : ''}`, run.seconds],
      ['idle', totals.gpu_joules > 0 ? 'In no host function' : 'Idle', share(totals.idle_joules, totals.joules), '', `${OF_TOTAL}: ${figure(totals.idle_joules)} J in no function`, totals.idle_joules],
    ];
    if (totals.gpu_joules > 0) tiles.push(['kernels', 'In GPU kernels', share(totals.kernel_joules, totals.joules), '', `${OF_TOTAL}; ${share(totals.kernel_joules, totals.gpu_joules)} of the ${figure(totals.gpu_joules)} J of GPUs with kernels`, totals.kernel_joules]);
    if (ofMpi > 0) tiles.push(['mpi', 'In MPI', share(ofMpi, own ?? totals.joules), '', `${own == null ? OF_TOTAL : OF_DYNAMIC}: ${figure(ofMpi)} J`, ofMpi]);
    if (totals.lost_joules > 0) tiles.push(['lost', 'Lost', share(totals.lost_joules, totals.joules), '', `${OF_TOTAL}: ${figure(totals.lost_joules)} J`, totals.lost_joules]);
    tiles.push(['notes', 'Quality', notes ? `${notes} note${notes === 1 ? '' : 's'}` : bad.length ? 'see below' : 'good', '', [...labels.filter(isIncomplete), run.energy, ...labels.filter(words => !isIncomplete(words))].join('; '), notes]);
    const at = $('totals');
    const ids = tiles.map(([key]) => 'total-' + key);
    if (ids.length !== at.children.length || ids.some((id, index) => at.children[index].id !== id)) fill(at, ...tiles.map(([key, title]) =>
      element('div', { id: 'total-' + key }, element('dt', {}, title), element('dd', {}), element('dd', { class: 'under' }))));
    tiles.forEach(([, , value, sign, under, exact], index) => {
      const tile = at.children[index];
      tile.dataset.value = exact;
      update(tile.children[1], value, ...(sign ? [' ', element('small', {}, sign)] : []));
      tile.children[2].textContent = under;
      tile.children[2].title = under;
    });
    update('sentences', ...page.sentences.map(words => element('li', {}, together(words))));
    show('notes', page.notes.length);
    // One or two further notes get no button.
    const lines = page.notes.map(words => element('li', {}, together(words))), first = lines.length > FIRST_NOTES + 2 ? FIRST_NOTES : lines.length;
    update('notes-first', ...lines.slice(0, first));
    update('notes-rest', ...lines.slice(first));
    show('notes-more', lines.length > first);
    text('notes-count', `${lines.length - first} more notes`);
    show('short', page.sentences.length + page.notes.length);
  }

  // ---- nodes ----

  // During a run, these parts show one node: that of the collector. In a file, all parts show all nodes.
  const OF_ONE_NODE = ['power', 'now', 'python', 'heat', 'flame', 'devices', 'paths', 'quality', 'monitor'], titles = {};
  const gathered = () => page.job && page.job.here ? page.job : null;
  function drawNodes() {
    const job = page.job, isGathered = gathered() !== null;
    for (const id of OF_ONE_NODE) {
      titles[id] ??= $(id + '-title').textContent;
      text(id + '-title', titles[id] + (isGathered ? ` on ${job.here}` : ''));
    }
    show('nodes', job);
    if (!job) return;
    const nodes = job.nodes, number_of = state => nodes.filter(node => node.state === state).length;
    const columns = [number('watts', isGathered ? 'W' : 'mean W', figure, { show: (row, largest) => row.watts == null ? '' : figure(row.watts, largest) }),
      number('joules', 'J', figure), { ...number('share', OF_TOTAL, value => value.toFixed(1) + ' %'), minor: true }, BAR,
      number('idle', 'idle', value => value.toFixed(0) + ' %', { show: row => row.idle == null ? '' : row.idle.toFixed(0) + ' %', help: `the part of its joules${isGathered ? ' of late' : ''} in which no rank was active` }),
      number('ranks', 'ranks', count, { minor: true }),
      { key: 'words', title: 'node', kind: () => 'name node' }, { key: 'state', title: isGathered ? 'state' : 'energy', kind: row => row.stands ? 'stands' : '' }];
    tableOf('nodes-table', columns, { caption: 'Nodes', sort: 'watts' }).set(nodes.map(node => ({
      words: node.node, watts: node.watts, joules: node.joules, ranks: node.ranks, last: 0, stands: node.state === 'gone' || node.problem !== '',
      idle: node.idle_ratio == null ? null : 100 * node.idle_ratio, part: page.totals.joules > 0 ? node.joules / page.totals.joules : 0,
      share: page.totals.joules > 0 ? 100 * node.joules / page.totals.joules : 0,
      state: isGathered ? node.state + (node.problem ? `: ${node.problem}` : '') + (node.energy && node.energy !== 'measured' ? `, ${node.energy}` : '') : node.energy }))
      .concat(job.other_nodes.count ? [{ words: `${count(job.other_nodes.count)} more ${isGathered ? 'at /nodes' : 'in summary.json'}`, joules: job.other_nodes.joules, state: '', last: 1,
        part: 0, share: 100 * job.other_nodes.joules / page.totals.joules }] : []));
    const states = isGathered ? ['running', 'waiting', 'over', 'gone'].filter(number_of).map(state => `${count(number_of(state))} ${state}`) : [];
    text('nodes-rest', [states.join(', '), job.idle.length ? `idle: ${job.idle.join(', ')}` : ''].filter(Boolean).join('; '));
  }

  // ---- power ----

  const LINES_MAX = 8;
  // `power` has the `steps` of each device, [[begin, length, watts]...] in seconds, from before and after the page was opened.
  // `zoom` is the interval that is shown, if not the whole run; `drag` is the interval that is being selected.
  let power = [], asStrips = null, moment = null, zoom = null, drag = null;
  function takePower() {
    page.power.forEach((of, at) => {
      if (of.segments.length || !power[at] || power[at].of.name !== of.name) {
        const steps = [];
        for (const { begin, step, watts } of of.segments) watts.forEach((value, index) => steps.push([begin + index * step, step, value]));
        power[at] = { of, steps, gauges: [] };
      } else if (of.watts != null) {
        const { steps } = power[at], last = steps[steps.length - 1], from = last ? last[0] + last[1] : page.run.seconds - 1;
        if (page.run.seconds > from) steps.push([from, page.run.seconds - from, of.watts]);
        power[at].of = of;
      }
      takeGauges(power[at].gauges, of.gauges ?? []);
    });
    power.length = page.power.length;
  }
  // Adds the values that are new to the lines of a device: {quantity, which, seconds, values}. An update has only the last values.
  function takeGauges(known, lines) {
    for (const of of lines) {
      let line = known.find(line => line.quantity === of.quantity && line.which === of.which);
      if (!line) known.push(line = { quantity: of.quantity, which: of.which, seconds: [], values: [] });
      of.seconds.forEach((time, at) => {
        if (!line.seconds.length || time > line.seconds[line.seconds.length - 1]) { line.seconds.push(time); line.values.push(of.values[at]); }
      });
    }
  }
  // The quantity that each button shows, which devices report over time. A limit far above the power would flatten the curve, so
  // it is hidden at first.
  const GAUGES = { 'power-clock': 'clock_hertz', 'power-limit': 'power_limit_watts', 'power-throttled': 'throttled_ratio' };
  const gaugeShown = {}, LIMIT_FACTOR = 1.5;
  const linesOf = (device, quantity) => device.gauges.filter(line => line.quantity === quantity);
  const greatest = quantity => Math.max(0, ...power.flatMap(device => linesOf(device, quantity).flatMap(line => line.values)));
  const showsGauge = (id, most) => gaugeShown[id] ?? (id !== 'power-limit' || greatest(GAUGES[id]) <= LIMIT_FACTOR * most);
  function gauge_at(line, time) {
    const at = line.seconds.filter(begin => begin <= (time ?? Infinity)).length - 1;
    return at < 0 ? null : line.values[at];
  }
  // The clock, the limit and the throttling of a device at a time: `1.70 GHz, limit 500 W, throttled (thermal)`.
  function gaugeWords(device, time) {
    const words = { clock_hertz: value => `${(value / 1e9).toFixed(2)} GHz`, power_limit_watts: value => `limit ${watts(value)}`, throttled_ratio: (value, which) => value > 0 ? `throttled (${which})` : '' };
    const all = device.gauges.map(line => { const value = gauge_at(line, time); return value == null || !words[line.quantity] ? '' : words[line.quantity](value, line.which); });
    return all.filter(Boolean).join(', ');
  }
  // Calls `paint(begin, end, value)` for each value of a line, which applies until the next.
  function eachValue({ seconds, values }, end, paint) {
    seconds.forEach((begin, at) => values[at] != null && paint(begin, seconds[at + 1] ?? end, values[at]));
  }
  // Draws the lines of a gauge in the colours of the devices.
  function drawGauge(draw, quantity, { x, y, end, dash, width }) {
    const colour = series();
    draw.setLineDash(dash); draw.lineWidth = width;
    power.forEach((device, index) => linesOf(device, quantity).forEach(line => {
      draw.strokeStyle = colour[index % colour.length];
      draw.beginPath();
      let last = null;
      eachValue(line, end, (from, to, value) => {
        if (last === from) draw.lineTo(x(from), y(value)); else draw.moveTo(x(from), y(value));
        draw.lineTo(x(last = to), y(value));
      });
      draw.stroke();
    }));
    draw.setLineDash([]); draw.lineWidth = 1;
  }
  // Marks when each device was throttled, by a bar at the top of the curves.
  function drawThrottled(draw, { x, end, high }) {
    const colour = series();
    power.forEach((device, index) => linesOf(device, 'throttled_ratio').forEach(line => {
      draw.fillStyle = colour[index % colour.length];
      eachValue(line, end, (from, to, value) => {
        if (value > 0) { draw.globalAlpha = 0.35 + 0.65 * value; draw.fillRect(x(from), index * high, Math.max(1, x(to) - x(from)), high - 1); }
      });
    }));
    draw.globalAlpha = 1;
  }
  // Draws the clocks below the curves, with their own scale from 0.
  function drawClocks(draw, { x, left, right, end, from, high, inside }) {
    const most = greatest('clock_hertz'), y = value => from + high * (1 - 0.9 * value / most);
    draw.strokeStyle = colours.line; draw.fillStyle = colours.soft; draw.textAlign = 'right';
    for (const value of [0, most]) {
      draw.beginPath(); draw.moveTo(left, y(value)); draw.lineTo(right, y(value)); draw.stroke();
      draw.fillText(value ? `${(value / 1e9).toFixed(2)} GHz` : '0', left - 6, y(value));
    }
    inside(from, high, () => drawGauge(draw, 'clock_hertz', { x, y, end, dash: [], width: 1.3 }));
  }
  function gaugeButtons(strips, most) {
    const shown = {};
    for (const [id, quantity] of Object.entries(GAUGES)) {
      const isThere = !strips && greatest(quantity) > 0;
      show(id, isThere);
      shown[id] = isThere && showsGauge(id, most);
      $(id).setAttribute('aria-pressed', String(shown[id]));
    }
    const words = [shown['power-limit'] && 'The dashed and dotted line is the power limit.', shown['power-throttled'] && 'A bar at the top marks the time in which a device was throttled.', shown['power-clock'] && 'Below the curve: the clock.'].filter(Boolean);
    text('power-words', words.join(' '));
    show('power-words', words.length);
    return shown;
  }
  const label = of => page.power.some(other => other.node !== of.node) ? `${of.node} ${of.name}` : of.name;
  function at_time(steps, time) {
    let low = 0, high = steps.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (steps[middle][0] <= time) low = middle; else high = middle - 1; }
    return steps.length && time >= steps[0][0] && time <= steps[low][0] + steps[low][1] ? steps[low] : null;
  }
  function niceStep(most, about) {
    const raw = most / about, ten = Math.pow(10, Math.floor(Math.log10(raw || 1)));
    return ten * [1, 2, 2.5, 5, 10].find(factor => factor * ten >= raw);
  }
  function heatColour(part, keys = ['heat-0', 'heat-1', 'heat-2', 'heat-3']) {
    const stops = keys.map(key => parseInt(colours[key].slice(1), 16));
    const place = Math.max(0, Math.min(0.9999, part)) * (stops.length - 1), from = stops[Math.floor(place)], to = stops[Math.floor(place) + 1], mix = place % 1;
    const channel = shift => Math.round((from >> shift & 255) * (1 - mix) + (to >> shift & 255) * mix);
    return `rgb(${channel(16)} ${channel(8)} ${channel(0)})`;
  }
  const ticks = ([from, to], width) => {
    const step = niceStep(to - from, Math.max(2, width / 110)), all = [];
    for (let at = step * Math.ceil(from / step - 1e-6); at <= to + 1e-4 * step; at += step) all.push(at);
    return all;
  };
  // `span` is the length of the shown time in seconds. The shorter it is, the more digits a moment has.
  function clock(seconds, span) {
    const [size, unit, places] = span >= 7200 ? [3600, 'h', 2] : span >= 600 ? [60, 'min', 1] : span >= 1 || seconds >= 1 ? [1, 's', 2] : [0.001, 'ms', 2];
    const value = (seconds / size).toFixed(Math.max(places, Math.ceil(Math.log10(100 * size / span))));
    return (size > 1 ? value : +value) + ' ' + unit;
  }
  // The lanes below the curve; on each node, GPUs come first.
  const LANE_ROWS = 22;
  const lanesShown = () => tables ? tables.lanes : [];
  function lane_at(of, time) {
    const at = Math.floor((time - of.begin) / of.step);
    return of.name[at] == null ? null : { words: name(of.name[at]), percent: of.percent[at] };
  }
  const laneLabel = of => tables.lanes.some(other => other.node !== of.node) ? `${of.node} ${of.label}` : of.label;
  const laneKind = (of, words) => of.view === 'kernels' ? 'kernel' : isMpi.has(words) ? 'mpi' : 'function';
  function laneWords(of, time) {
    const ran = lane_at(of, time);
    return `${laneLabel(of)}: ${ran ? `${clip(ran.words, 120)}, ${ran.percent} % of ${clock(of.step, of.step)}` : 'nothing'}`;
  }
  // Returns the sequences of steps in which the same function ran the most: `at` is the number of its name, `step` the last step,
  // `sum` the sum of the percentages.
  function laneRuns(of) {
    const runs = [];
    of.name.forEach((at, step) => {
      const last = runs[runs.length - 1], begin = of.begin + step * of.step;
      if (at == null) return;
      if (last && last.at === at && last.step === step - 1) { last.step = step; last.sum += of.percent[step]; last.end = begin + of.step; }
      else runs.push({ at, begin, end: begin + of.step, step, sum: of.percent[step] });
    });
    return runs;
  }
  // The functions and kernels that ran longest in all lanes, as [name, kind]. Their colours are explained below the curve.
  const LANE_NAMES_MAX = 10;
  function laneNames() {
    const seconds = new Map();
    for (const of of lanesShown()) of.name.forEach((at, step) => {
      if (at == null) return;
      const key = name(at), known = seconds.get(key) || seconds.set(key, [0, laneKind(of, key)]).get(key);
      known[0] += of.step * of.percent[step];
    });
    const names = [...seconds].sort((a, b) => b[1][0] - a[1][0]).slice(0, LANE_NAMES_MAX).map(([words, [, kind]]) => [words, kind]);
    for (const [words, kind] of names) {
      const known = shades[kind];
      // Multiples of the golden ratio, without their whole parts, never come close to each other.
      if (known && !known.has(words)) known.set(words, 0.618034 * known.size % 1);
    }
    return names;
  }
  function drawLanes(draw, { strips, left, right, from, high, x }) {
    const size = colours.size, every = Math.max(1, Math.ceil(0.9 * size / high));
    lanesShown().forEach((of, index) => {
      const y = from + index * high;
      // A GPU's label has the colour of its curve.
      const line = strips || of.view !== 'kernels' ? -1 : power.findIndex(other => other.of.name === of.label && other.of.node === of.node);
      draw.textAlign = 'left'; draw.globalAlpha = 1; draw.fillStyle = line < 0 ? colours.soft : series()[line % series().length];
      if (index % every === 0) draw.fillText(fit(draw, laneLabel(of), left - 6), 0, y + high / 2);
      draw.save();
      draw.beginPath(); draw.rect(left, y, right - left, high); draw.clip();
      for (const run of laneRuns(of)) {
        const words = name(run.at), first = run.step + 1 - Math.round((run.end - run.begin) / of.step);
        draw.fillStyle = boxColour(laneKind(of, words), words);
        for (let step = first; step <= run.step;) {
          // Steps whose shades look alike are one box, without seams.
          const shade = Math.ceil(of.percent[step] / 10), begin = step;
          while (step <= run.step && Math.ceil(of.percent[step] / 10) === shade) step++;
          const [at, end] = [begin, step].map(number => x(of.begin + number * of.step));
          draw.globalAlpha = 0.15 + 0.085 * shade;
          draw.fillRect(at, y, Math.max(0.6, end - at), high - 1);
        }
        draw.globalAlpha = 1;
        const [at, end] = [Math.max(left, x(run.begin)), Math.min(right, x(run.end))], mean = run.sum * of.step / (run.end - run.begin);
        if (high < 0.9 * size || end - at < 3 * size) continue;
        draw.fillStyle = mean < 40 ? colours.text : colours.ink;
        draw.fillText(fit(draw, brief(words), end - at - 8), at + 4, y + high / 2);
      }
      draw.restore();
    });
    draw.globalAlpha = 1;
  }
  function drawPower() {
    show('power', power.length);
    if (!power.length) return;
    const end = Math.max(1e-6, ...power.map(({ steps }) => steps.length ? steps[steps.length - 1][0] + steps[steps.length - 1][1] : 0));
    if (zoom && zoom[0] >= end) zoom = null;
    const span = zoom ? [zoom[0], Math.min(zoom[1], end)] : [0, end], shown = span[1] - span[0];
    const drawn = Math.max(1e-6, ...power.map(({ of, steps }) => steps.reduce((most, step) => Math.max(most, step[2] ?? 0), of.baseline_watts ?? 0)));
    const strips = asStrips ?? power.length > LINES_MAX, gauges = gaugeButtons(strips, drawn);
    const most = gauges['power-limit'] ? Math.max(drawn, greatest('power_limit_watts')) : drawn;
    $('power-form').setAttribute('aria-pressed', String(strips));
    show('power-form', power.length > 1);
    const size = colours.size, row = Math.max(6, Math.min(1.5 * size, 30 * size / power.length));
    const below = lanesShown(), high = Math.max(0.6 * size, Math.min(1.45 * size, LANE_ROWS * size / below.length));
    const curve = strips ? row * power.length : Math.max(9.4 * size, Math.min(15.4 * size, 0.24 * innerHeight - 1.6 * size));
    const clocks = gauges['power-clock'] ? 3.9 * size : 0;
    const lanesFrom = curve + clocks + 0.5 * size, { draw, width, height } = canvas('power-picture', lanesFrom + high * below.length + 1.4 * size);
    draw.font = `${0.78 * size}px system-ui, "DejaVu Sans", sans-serif`;
    const widest = below.reduce((most, of) => Math.max(most, draw.measureText(laneLabel(of)).width), 0);
    const left = Math.max(strips ? Math.min(11 * size, width / 4) : (clocks ? 4.6 : 4) * size, Math.min(widest + 8, width / 4)), right = width - 4, bottom = strips ? curve : curve - 0.1 * size;
    const x = time => left + (right - left) * (time - span[0]) / shown;
    const unit = niceStep(most, 5), top = unit * Math.ceil(most * 1.02 / unit), y = value => bottom - (bottom - 0.5 * size) * value / top;
    draw.fillStyle = colours.soft;
    draw.strokeStyle = colours.line;
    for (const time of ticks(span, right - left)) {
      draw.textAlign = x(time) < left + 2 * size ? 'left' : x(time) > right - 2 * size ? 'right' : 'center';
      draw.fillText(clock(time, shown), x(time), height - 0.6 * size);
    }
    const within = (from, high, paint) => { draw.save(); draw.beginPath(); draw.rect(left, from, right - left, high); draw.clip(); paint(); draw.restore(); };
    const inside = paint => within(0, curve, paint);
    const colour = series();
    if (strips) {
      power.forEach(({ of, steps }, index) => {
        const from = row * index;
        inside(() => {
          for (const [begin, length, value] of steps) {
            if (value == null) continue;
            draw.fillStyle = heatColour(value / most);
            draw.fillRect(x(begin), from, Math.max(0.6, x(begin + length) - x(begin) + 0.3), row - 1);
          }
        });
        if (row >= 0.8 * size || index % Math.ceil(0.9 * size / row) === 0) {
          draw.fillStyle = colours.soft; draw.textAlign = 'left';
          draw.fillText(clip(label(of), Math.floor(left / (0.5 * size))), 0, from + row / 2, left - 6);
        }
      });
    } else {
      draw.textAlign = 'right';
      for (let value = 0; value <= top * 1.001; value += unit) {
        draw.beginPath(); draw.moveTo(left, y(value)); draw.lineTo(right, y(value)); draw.stroke();
        draw.fillText(+value.toFixed(2) + ' W', left - 6, y(value));
      }
      power.forEach(({ of }, index) => {
        if (of.baseline_watts == null) return;
        draw.beginPath(); draw.moveTo(left, y(of.baseline_watts)); draw.lineTo(right, y(of.baseline_watts));
        draw.strokeStyle = colour[index % colour.length]; draw.globalAlpha = 0.8;
        draw.setLineDash([2, 3]); draw.stroke(); draw.setLineDash([]); draw.globalAlpha = 1;
      });
      inside(() => power.forEach(({ of, steps }, index) => {
        draw.beginPath();
        let open = false, last = 0;
        for (const [begin, length, value] of steps) {
          if (value == null) { open = false; continue; }
          if (!open) draw.moveTo(x(begin), y(value)); else draw.lineTo(x(begin), y(value));
          draw.lineTo(last = x(begin + length), y(value));
          open = true;
        }
        draw.strokeStyle = colour[index % colour.length];
        draw.lineWidth = 1.7;
        draw.lineJoin = 'round';
        draw.setLineDash(of.energy === 'measured' ? [] : [6, 3]);
        draw.stroke();
        draw.setLineDash([]);
        if (power.length === 1 && steps.length) {
          draw.lineTo(last, y(0)); draw.lineTo(x(steps[0][0]), y(0));
          draw.globalAlpha = 0.13; draw.fillStyle = colour[0]; draw.fill();
          // The power above the baseline is dynamic.
          if (of.baseline_watts != null) {
            draw.save(); const path = new Path2D(); path.rect(left, 0, right - left, y(of.baseline_watts)); draw.clip(path);
            draw.globalAlpha = 0.45; draw.fill(); draw.restore();
          }
          draw.globalAlpha = 1;
        }
      }));
      draw.lineWidth = 1;
      if (gauges['power-limit']) inside(() => drawGauge(draw, 'power_limit_watts', { x, y, end, dash: [8, 3, 2, 3], width: 1 }));
      if (gauges['power-throttled']) inside(() => drawThrottled(draw, { x, end, high: 0.3 * size }));
      if (clocks) drawClocks(draw, { x, left, right, end, from: curve + 0.8 * size, high: clocks - 0.8 * size, inside: within });
    }
    const names = laneNames(); // this chooses their shades
    drawLanes(draw, { strips, left, right, from: lanesFrom, high, x });
    drawPower.time = place => Math.max(span[0], Math.min(span[1], span[0] + (place - left) / (right - left) * shown));
    drawPower.lane = place => below[Math.floor((place - lanesFrom) / high)];
    drawPower.step = shown / Math.max(1, Math.min(200, Math.max(...power.map(({ steps }) => steps.length))));
    Object.assign(drawPower, { end, span, shown });
    draw.strokeStyle = colours.text;
    if (moment !== null && moment >= span[0] && moment <= span[1]) { draw.beginPath(); draw.moveTo(x(moment), 0); draw.lineTo(x(moment), height - 1.4 * size); draw.stroke(); }
    if (drag) { draw.globalAlpha = 0.2; draw.fillStyle = colours.text; draw.fillRect(x(drag[0]), 0, x(drag[1]) - x(drag[0]), height - 1.4 * size); draw.globalAlpha = 1; }
    show('power-out', zoom); show('lanes-words', below.length);
    const now = isLive && page.state === 'running' ? 'now ' : 'mean ';
    // After the end of a run the legend shows means, and the last value of the clock is not a mean.
    const reported = index => moment === null && now === 'mean ' ? '' : gaugeWords(power[index], moment);
    update('power-legend', ...power.slice(0, 2 * LINES_MAX).map(({ of }, index) => element('li', {},
      ...(strips ? [] : [element('i', { style: `background:${colour[index % colour.length]}` })]), label(of) + ' ',
      element('b', {}, moment === null ? watts(of.watts ?? of.mean_watts) : watts((at_time(power[index].steps, moment) || [])[2])),
      ...(of.baseline_watts == null ? [] : [element('span', { class: 'small' }, `, of which it draws ${watts(of.baseline_watts)} anyway (static, below the dotted line)`)]),
      ...(reported(index) ? [element('span', { class: 'small' }, ', ' + reported(index))] : []),
      ...(of.energy === 'measured' ? [] : [element('span', { class: 'small' }, ' ' + of.energy)]))));
    update('lanes-legend', ...names.map(([words, kind]) => element('li', { title: words }, element('i', { style: `background:${boxColour(kind, words)}` }), clip(brief(words), 60))));
    text('power-span', (zoom ? `${clock(span[0], shown)} to ${clock(span[1], shown)}; ` : '') + (moment === null ? now : `at ${clock(moment, shown)} `).trim() + (strips ? `; the darkest: ${watts(most)}` .replace('darkest', colours.isDark ? 'brightest' : 'darkest') : ''));
    describe('power-picture', { 'aria-label': `Power of ${power.length === 1 ? label(power[0].of) : `${power.length} devices`} over ${duration(end)}${zoom ? `, from ${clock(span[0], shown)} to ${clock(span[1], shown)}` : ''}, at most ${watts(drawn)}`, ...powerAt(moment) });
    tableOf('power-table', [{ key: 'words', title: 'device', kind: () => 'name' }, number('mean', 'mean W', figure), number('most', 'most W', figure), ...(isLive && page.state === 'running' ? [number('now', 'now W', figure)] : [])],
      { caption: 'Power of each device', sort: 'mean' }).set(power.map(({ of, steps }) => ({
      words: label(of), last: 0, mean: of.mean_watts, now: of.watts, most: steps.reduce((most, step) => Math.max(most, step[2] ?? 0), 0) })));
    show('lanes-table', below.length);
    if (below.length && $('power-table').parentNode.open) tableOf('lanes-table', [number('seconds', 's', value => value.toFixed(2)), number('begin', 'from s', value => value.toFixed(2)), number('percent', '% of it', value => value.toFixed(0), { minor: true }), { key: 'label', title: 'GPU or rank' }, { key: 'words', title: 'ran the most', kind: () => 'name' }], { caption: 'What ran on each GPU and rank', sort: 'seconds' })
      .set(below.flatMap(of => laneRuns(of).map(run => ({ words: name(run.at), label: laneLabel(of), begin: Math.max(0, run.begin), seconds: run.end - run.begin, percent: run.sum * of.step / (run.end - run.begin), last: 0 }))));
  }
  function powerAt(time) {
    const values = power.slice(0, LINES_MAX).map(({ of, steps }) => `${label(of)} ${watts(time === null ? of.watts ?? of.mean_watts : (at_time(steps, time) || [])[2])}`);
    const when = time !== null ? `at ${clock(time, drawPower.shown)}` : isLive && page.state === 'running' ? 'now' : 'mean';
    if (time !== null) values.push(...lanesShown().slice(0, LINES_MAX).map(of => laneWords(of, time)));
    return { 'aria-valuemin': 0, 'aria-valuemax': drawPower.end, 'aria-valuenow': time ?? drawPower.end, 'aria-valuetext': `${when}: ${values.join(', ')}` };
  }
  function readPower(time) {
    moment = time;
    drawPower();
    for (const [key, value] of Object.entries(powerAt(time))) $('power-picture').setAttribute(key, value);
  }

  function zoomPower(to) {
    zoom = to;
    drawPower();
    say(zoom ? `${clock(zoom[0], drawPower.shown)} to ${clock(zoom[1], drawPower.shown)}` : 'the whole run');
  }

  // ---- where ranks are ----

  function drawNow() {
    const now = page.now, is = now && now.cells.length > 0 && page.state === 'running';
    show('now', is);
    if (!is) return;
    const all = now.functions.reduce((sum, of) => sum + of.ranks, 0), what = whatIs(now.cells[0].label);
    text('now-title', `Where the ${what[1]} are now`);
    const shade = words => words ? boxColour(kindOf(words), words) : colours.rest;
    update('now-bars', ...now.functions.map(of => element('li', { title: of.name },
      element('i', { style: `width:${(100 * of.ranks / all).toFixed(1)}%;background:${shade(of.name)}` }),
      element('span', {}, brief(of.name) || 'in no function'), element('b', {}, `${count(of.ranks)} ${what[of.ranks === 1 ? 0 : 1]}`))));
    const where = cell => cell.function == null ? '' : now.functions[cell.function].name;
    // A process without a rank has a long name.
    const wide = cell => cell.label.length > 7 ? `;grid-column:span ${Math.min(4, Math.ceil(cell.label.length / 5))}` : '';
    update('now-cells', ...now.cells.map(cell => element('span', { style: `background:${shade(where(cell))}${wide(cell)}`, title: `${cell.label}: ${where(cell) || 'in another or no function'}` }, cell.label)));
    text('now-others', now.others);
    if ($('now-table').parentNode.open) tableOf('now-table', [{ key: 'label', title: what[0] }, { key: 'words', title: 'function', kind: () => 'name' }], { caption: `Where each ${what[0]} is`, sort: 'place' })
      .set(now.cells.map((cell, at) => ({ label: cell.label, place: -at, words: where(cell) || '(other)', last: 0 })));
  }

  // ---- functions, kernels ----

  // For all nodes, only joules are known.
  function ofJob(rows, whole) {
    const joules = rows.map(row => row.joules);
    return { sampled_error_joules: [], words: rows.map(row => row.name), name: joules, joules, rest: whole - joules.reduce((sum, value) => sum + value, 0) };
  }
  // The base of a table's shares, as the head of the column, and explained.
  const baseOf = of => orderOf(of).sort ? [OF_DYNAMIC, 'of the joules that the run used above what its devices draw anyway'] : [OF_TOTAL, 'of all joules of the run'];
  const baseWords = of => orderOf(of).sort ? `${OF_DYNAMIC}: of the ${figure(tables.dynamic_joules)} J that the run used above what its devices draw anyway.` : `${OF_TOTAL}: of the ${figure(page.totals.joules)} J of the run.`;
  const FEW_RANKS = 16;
  function drawRows() {
    const totals = page.totals, job = gathered();
    const functions = job ? ofJob(job.functions, totals.joules - totals.idle_joules - totals.lost_joules) : tables.functions;
    const kernels = job ? ofJob(job.kernels, totals.kernel_joules) : tables.kernels;
    const python = tables.python.name.length ? { ...tables.python, elsewhere: outsidePython(tables) } : tables.python;
    for (const [id, of, what, whole, idle, lost] of [['python', python, 'Python function', totals.joules, 0, 0], ['functions', functions, 'function', totals.joules, totals.idle_joules, totals.lost_joules], ['kernels', kernels, 'kernel', totals.joules, 0, 0]]) {
      show(id, of.name.length);
      if (!of.name.length) continue;
      tableOf(id + '-table', rowColumns(of, what, 'J', baseOf(of)), { caption: `Joules by ${what}`, large: 'J', ...orderOf(of) }).set(rowsOf(of, whole, idle, id === 'functions' ? totals.other_jobs_joules : 0, lost, tables.dynamic_joules));
    }
    // The functions of the host come after the kernels.
    const isOfGpus = kernels.name.length > 0;
    $('main').classList.toggle('gpus', isOfGpus);
    // Pictures of few ranks need little room, and the table of functions has many columns.
    $('main').classList.toggle('few', !isOfGpus && tables.ranks.label.length <= FEW_RANKS);
    if (!job) text('functions-title', isOfGpus ? 'Functions on the host, also while kernels ran' : 'Functions');
    text('python-rest', `${baseWords(tables.python)} Each row has the joules of a Python function itself and of the C functions that it calls. The Python functions that it calls have rows of their own. The callers of functions in a library's own threads, and of some others, are not known.`);
    text('kernels-rest', `${baseWords(kernels)} GPUs with kernels used ${figure(totals.gpu_joules)} of all ${figure(totals.joules)} J, ${figure(totals.kernel_joules)} J of them while a kernel ran.`);
    // The explanations of columns are hidden with them.
    const explained = (where, words) => element('span', { class: where }, words + ' ');
    update('functions-base', baseWords(functions) + ' ', ...(orderOf(functions).sort ? [explained('minor', STATIC)] : []), ...((functions.waited_joules || []).length ? [explained('minor in-middle', `waited J: ${WAITED}. caused J: ${CAUSED}.`)] : []));
    update('functions-rest', job ? `of all nodes; the tables of ${job.here}'s devices, below, have only its own functions, with all of their figures` : tables.functions.least_joules.length && hasBounds(tables.functions) ? explained('minor in-middle', `${RANGE}; the ${orderOf(functions).sort ? 'dynamic' : 'attributed'} joules lie between`) : '');
  }

  // ---- heat map ----

  // Whether a label is that of ranks, and not that of a process without MPI.
  const isRank = label => /^\d+(-\d+)?$/.test(label), whatIs = label => isRank(label) ? ['rank', 'ranks'] : ['process', 'processes'];

  let isWholeHeat = false;
  // The pictures that consist of cells: what is shown, the selected cell, and the words about a cell.
  const grids = { heat: { shown: heatShown, words: cellWords, cell: null, draw: drawHeat }, waits: { shown: waitsShown, words: waitWords, cell: null, draw: drawWaits } };
  // Draws the values of rows, which are `row` pixels high. The strongest colour is that of the row's `scale`.
  function drawGrid(id, { rows, label }, { row, nameWidth, scale }) {
    const grid = grids[id], size = colours.size, head = 1.5 * size, { draw, width } = canvas(id + '-picture', row * rows.length + head);
    draw.font = `${0.78 * size}px ui-monospace, "DejaVu Sans Mono", monospace`;
    const left = Math.min(nameWidth * size, width * 0.38), wide = (width - left) / label.length;
    grid.place = (x, y) => [Math.floor((x - left) / wide), Math.floor((y - head) / row)];
    draw.fillStyle = colours.soft;
    const longest = label.reduce((most, words) => Math.max(most, draw.measureText(clip(words, 12)).width), 0);
    const every = Math.ceil((longest + 0.6 * size) / wide), everyRow = Math.ceil(0.9 * size / row), gap = row > 4 ? 1 : 0;
    label.map(words => clip(words, 12)).forEach((words, at) => { if (at % every === 0 && left + at * wide + draw.measureText(words).width < width) draw.fillText(words, left + at * wide + 1, head / 2); });
    rows.forEach(({ name, values }, at) => {
      const most = scale(values), y = head + at * row;
      draw.fillStyle = colours.text;
      if (at % everyRow === 0) draw.fillText(fit(draw, brief(name), left - 8), 0, y + row / 2);
      values.forEach((value, column) => {
        draw.fillStyle = heatColour(most > 0 ? value / most : 0);
        draw.fillRect(left + column * wide, y, wide > 4 ? wide - 1 : wide + 0.4, row - gap + 0.4 * (1 - gap));
      });
    });
    if (grid.cell && !isCell(id, grid.cell)) grid.cell = null;
    if (grid.cell) {
      draw.strokeStyle = colours.focus; draw.lineWidth = 2;
      draw.strokeRect(left + grid.cell[0] * wide, head + grid.cell[1] * row, Math.max(3, wide - 1), Math.max(3, row - 1));
    }
    if (document.activeElement !== $(id + '-picture')) readGrid(id);
  }
  function readGrid(id) {
    const { cell, shown, words } = grids[id], [column, row] = cell || [0, 0], { rows, label } = shown();
    read(id + '-picture', place => element('div', { id: place, role: 'option', 'aria-setsize': rows.length * label.length, 'aria-posinset': row * label.length + column + 1 }, words([column, row])));
  }
  function toCell(id, at) {
    if (!isCell(id, at)) return;
    grids[id].cell = at;
    grids[id].draw();
    readGrid(id);
  }
  function isCell(id, at) {
    const { rows, label } = grids[id].shown();
    return at && at[0] >= 0 && at[1] >= 0 && at[0] < label.length && at[1] < rows.length;
  }
  const ownUnit = () => tables.dynamic_joules == null ? 'J' : 'dynamic J';
  // Only ranks are shown side by side; functions with few joules only on request.
  function heatShown() {
    const { heat, ranks } = tables, columns = ranks.label.length - (ranks.has_others ? 1 : 0), sum = values => values.reduce((a, b) => a + b, 0);
    const own = tables.dynamic_joules != null ? sum(tables.functions.dynamic_joules) : sum(tables.functions.joules) + tables.functions.others.joules, all = heat.joules.map((values, at) => ({ name: name(heat.name[at]), values: values.slice(0, columns), sum: sum(values) }));
    const large = all.filter(row => sum(row.values) >= PART_MIN * own), small = all.length - large.length, isCut = small > 3 && large.length > 0;
    const rows = isCut && !isWholeHeat ? large : all, rest = rows.reduce((rest, row) => rest - row.sum, own);
    return { rows, label: ranks.label.slice(0, columns), isCut, small, rest: Math.max(0, rest), own };
  }
  function drawHeat() {
    const { heat, ranks } = tables, shown = heatShown(), is = shown.label.length > 1 && heat.name.length > 0;
    show('heat', is);
    if (!is) return;
    text('heat-whole', ranks.words);
    text('heat-title', `${isRank(ranks.label[0]) ? 'Ranks' : 'Processes'} side by side`);
    $('heat-scale').options[0].textContent = ownUnit() === 'J' ? 'joules' : 'dynamic joules';
    show('heat-more', shown.isCut);
    text('heat-more', isWholeHeat ? 'Show less' : `Show more (${shown.small})`);
    text('heat-rest', shown.rest > 0.0005 * shown.own ? `functions that are not shown: ${figure(shown.rest)} ${ownUnit()}, ${share(shown.rest, shown.own)}` : '');
    const most = shown.rows.reduce((most, row) => Math.max(most, ...row.values), 0), byRow = $('heat-scale').value === 'row';
    describe('heat-picture', { 'aria-label': `Joules of ${shown.rows.length} functions on ${shown.label.length} ${whatIs(ranks.label[0])[1]} or groups of them` });
    drawGrid('heat', shown, { row: 1.55 * colours.size, nameWidth: 15, scale: values => byRow ? Math.max(...values) : most });
    if ($('heat-table').parentNode.open) tableOf('heat-table', [number('joules', ownUnit(), figure), number('least', 'least', figure, { minor: true }), number('mean', 'mean', figure, { minor: true }), number('most', 'most', figure), { key: 'at', title: 'most on' }, { key: 'words', title: 'function', kind: () => 'name' }], { caption: 'Joules of functions by rank' })
      .set(shown.rows.map(({ name, values }) => {
        const each = values.map((value, rank) => value / ranks.count[rank]), top = Math.max(...each), sum = values.reduce((a, b) => a + b, 0);
        return { words: name, joules: sum, least: Math.min(...each), most: top, mean: sum / ranks.count.slice(0, values.length).reduce((a, b) => a + b, 0), at: shown.label[each.indexOf(top)], last: 0 };
      }));
  }
  function cellWords([rank, row]) {
    const { ranks } = tables, { name, values } = heatShown().rows[row], value = values[rank], each = ranks.count[rank] > 1 ? `, ${figure(value / ranks.count[rank])} ${ownUnit()} each of ${ranks.count[rank]} ${whatIs(ranks.label[rank])[1]}` : '';
    return `${name}\n${whatIs(ranks.label[rank])[0]} ${ranks.label[rank]}: ${figure(value)} ${ownUnit()}${each}`;
  }

  // ---- who waits for whom ----

  const ranksOf = label => `rank${label.includes('-') ? 's' : ''} ${label}`;
  function waitsShown() {
    const { label, waiting, cause, joules } = tables.waits, rows = label.map(name => ({ name, values: label.map(() => 0) }));
    joules.forEach((value, at) => { rows[waiting[at]].values[cause[at]] += value; });
    return { rows, label, all: joules.reduce((sum, value) => sum + value, 0) };
  }
  function waitWords([column, row]) {
    const { rows, label, all } = waitsShown(), value = rows[row].values[column];
    return `${ranksOf(label[row])} waited for ${ranksOf(label[column])}:\n${figure(value)} J, ${share(value, all)} of all waiting`;
  }
  function drawWaits() {
    const { waits } = tables, is = waits.joules.length > 0;
    show('waits', is);
    if (!is) return;
    const shown = waitsShown(), size = colours.size, most = Math.max(...waits.joules);
    text('waits-whole', `${figure(shown.all)} J were used waiting in MPI. Each row is a rank that waited, each column the rank that caused it; the ${colours.isDark ? 'brightest' : 'darkest'} is ${figure(most)} J.`);
    describe('waits-picture', { 'aria-label': `Joules that ${shown.label.length} ranks or groups of ranks used waiting, by the rank that caused it` });
    drawGrid('waits', shown, { row: Math.max(3, Math.min(1.55 * size, 30 * size / shown.label.length)), nameWidth: 5.5, scale: () => most });
    if ($('waits-table').parentNode.open) tableOf('waits-table', [number('joules', 'J', figure), number('share', 'of waiting', value => value.toFixed(1) + ' %'), BAR, { key: 'words', title: 'waiting rank' }, { key: 'cause', title: 'caused by' }], { caption: 'Joules of waiting by the ranks that waited and that caused it' })
      .set(waits.joules.map((value, at) => ({ words: waits.label[waits.waiting[at]], cause: waits.label[waits.cause[at]], joules: value, part: value / shown.all, share: 100 * value / shown.all, last: 0 })));
  }
  function fit(draw, words, width) {
    if (draw.measureText(words).width <= width) return words;
    const letters = Math.floor(width / draw.measureText('m').width);
    return letters < 3 ? '' : clip(words, letters);
  }

  // ---- flame graph ----

  // The state of the flame graph. `of` is the index of the chosen picture, and `rank` is the label of the chosen rank. `path` and
  // `focused` are the paths of the enlarged and of the focused box. `boxes` are the boxes that are drawn.
  const flame = { of: null, rank: '', byWaits: false, path: [], focused: [], focus: 0, search: '', boxes: [], tree: null };
  // Boxes of the chosen flame: [{caller, words, kind, own, sum, dynamic, calls, below: []}], callers first. `dynamic` is the part
  // of the sum, or null where that is not known.
  function makeTree(of, column) {
    const own = column < 0 ? of.joules : of.by_rank[column], parts = column < 0 && of.dynamic_joules && of.dynamic_joules.length ? of.dynamic_joules : null, kernel = of.view === 'kernels' ? 'kernel' : 'function';
    // The waiting of each box, and the waiting that it caused, are known only for all ranks together.
    const waits = column < 0 ? [of.waited_joules, of.caused_waiting_joules] : [[], []];
    const small = new Set(of.small), boxes = of.name.map((at, index) => {
      const words = index === 0 ? of.title : name(at);
      return { caller: of.caller[index], words, kind: index === 0 ? 'whole' : small.has(index) ? 'small' : isMpi.has(words.replace(/ x\d+$/, '')) ? 'mpi' : kernel, own: own[index] || 0, sum: 0, dynamic: parts && parts[index], calls: column < 0 ? of.calls[index] : null, waited: waits[0][index] || 0, caused: waits[1][index] || 0, below: [] };
    });
    if (column < 0) for (const [words, value, dynamic] of [['idle', of.idle_joules, parts && of.idle_dynamic_joules], ['lost', of.lost_joules, null]])
      if (value > 0) boxes.push({ caller: 0, words, kind: 'rest', own: value, sum: 0, dynamic, calls: null, waited: 0, caused: 0, below: [] });
    for (let at = boxes.length - 1; at > 0; at--) {
      const box = boxes[at];
      box.sum += box.own;
      boxes[box.caller].sum += box.sum;
      if (parts) boxes[box.caller].dynamic += box.dynamic;
      if (box.sum > 0) boxes[box.caller].below.push(at);
    }
    for (const box of boxes) box.below.sort((a, b) => (boxes[a].kind === 'small' || boxes[a].kind === 'rest') - (boxes[b].kind === 'small' || boxes[b].kind === 'rest') || boxes[b].sum - boxes[a].sum);
    return boxes;
  }
  // Finds the box of a path of names. A path keeps the zoom at the same box while the boxes' numbers change.
  function find(boxes, path) {
    let at = 0;
    for (const words of path) {
      const next = boxes[at].below.find(below => boxes[below].words === words);
      if (next === undefined) break;
      at = next;
    }
    return at;
  }
  function pathOf(boxes, at) {
    const path = [];
    for (; at !== 0; at = boxes[at].caller) path.unshift(boxes[at].words);
    return path;
  }
  const ROW_MIN = 0.01, KERNELS_MIN = 0.1;
  // If kernels have much of a run's joules, the picture of kernels is shown, unless the reader chose another one.
  function flameAt() {
    if (tables.flames[flame.of]) return flame.of;
    return page.totals.kernel_joules >= KERNELS_MIN * page.totals.joules ? Math.max(0, tables.flames.findIndex(of => of.view === 'kernels')) : 0;
  }
  function drawFlame() {
    show('flame', tables.flames.length);
    if (!tables.flames.length) return;
    const chosen = tables.flames[flameAt()], ranks = tables.ranks.label;
    const column = chosen.by_rank.length ? ranks.indexOf(flame.rank) : -1;
    show('flame-rank-label', !isLive ? chosen.by_rank.length > 1 : ranks.length > 1 && flameAt() === 0);
    const boxes = flame.tree = makeTree(chosen, column), zoom = find(boxes, flame.path), whole = boxes[0].sum;
    flame.path = pathOf(boxes, zoom);
    flame.focus = find(boxes, flame.focused);
    // The position of each box: callers of the zoomed box are as wide as the picture.
    const callers = [];
    for (let at = zoom; ; at = boxes[at].caller) { callers.unshift(at); if (at === 0) break; }
    const width = $('flame-picture').clientWidth || $('flame-frame').clientWidth, placed = callers.map((at, row) => ({ at, x: 0, width, row }));
    const waiting = [placed[placed.length - 1]];
    const widths = [];
    while (waiting.length) {
      const { at, x, row, width: wide } = waiting.pop();
      let left = x;
      for (const below of boxes[at].below) {
        const part = boxes[at].sum > 0 ? wide * boxes[below].sum / boxes[at].sum : 0;
        if (part >= 0.35) {
          const box = { at: below, x: left, width: part, row: row + 1 };
          placed.push(box); waiting.push(box);
          widths[row + 1] = (widths[row + 1] || 0) + part;
        }
        left += part;
      }
    }
    // Deep but very narrow stacks, such as those of a launcher, would make the picture high and mostly white: they are shown when
    // a box is enlarged.
    const isFocused = document.activeElement === $('flame-picture'), focused = placed.find(box => box.at === flame.focus);
    const low = widths.findIndex((wide, row) => row >= callers.length && wide < ROW_MIN * width);
    const rows = Math.max(low < 0 ? widths.length : low, callers.length, isFocused && focused ? focused.row + 1 : 0);
    const size = colours.size, high = Math.round(1.42 * size);
    const { draw } = canvas('flame-picture', Math.max(4, rows) * high);
    draw.font = `${0.8 * size}px ui-monospace, "DejaVu Sans Mono", monospace`;
    const letter = draw.measureText('m').width, search = flame.search.toLowerCase();
    let found = 0, inside = new Set();
    const mostWaits = boxes.reduce((most, box) => Math.max(most, box.waited, box.caused), 0), byWaits = flame.byWaits && mostWaits > 0;
    show('flame-colour-label', mostWaits > 0);
    $('flame-keys').querySelector('.of-kind').hidden = byWaits;
    $('flame-keys').querySelector('.of-waits').hidden = !byWaits;
    const waitColour = (value, key) => heatColour(Math.sqrt(value / mostWaits), ['rest', key]);
    for (const { at, x, width: wide, row } of placed) {
      const box = boxes[at], is = search && box.kind !== 'whole' && box.words.toLowerCase().includes(search);
      draw.fillStyle = is ? colours.match : byWaits ? waitColour(box.caused, 'caused') : boxColour(box.kind, box.words);
      const isFaded = search && !is;
      draw.globalAlpha = isFaded ? 0.35 : row < callers.length - 1 ? 0.7 : 1;
      const painted = wide > 3 ? wide - 1 : Math.max(0.5, wide);
      draw.fillRect(x, row * high, painted, high - 1);
      // A box that waited and was waited for has both colours, in proportion.
      if (byWaits && !is && box.waited > 0) {
        draw.fillStyle = waitColour(box.waited, 'waited');
        draw.fillRect(x, row * high, painted * box.waited / (box.waited + box.caused), high - 1);
      }
      if (box.dynamic != null && !byWaits && wide > 3) {
        const fixed = painted * Math.max(0, 1 - box.dynamic / box.sum);
        draw.fillStyle = colours.card;
        draw.globalAlpha = 0.5;
        draw.fillRect(x + painted - fixed, row * high, fixed, high - 1);
      }
      const room = Math.floor((wide - 6) / letter);
      if (room >= 3) { draw.globalAlpha = 1; draw.fillStyle = isFaded ? colours.text : colours.ink; draw.fillText(clip(brief(box.words), room), x + 3, row * high + high / 2); }
    }
    draw.globalAlpha = 1;
    if (search) boxes.forEach((box, at) => {
      if (inside.has(box.caller)) inside.add(at);
      else if (at !== 0 && box.words.toLowerCase().includes(search)) { inside.add(at); found += box.sum; }
    });
    if (focused && isFocused) {
      draw.strokeStyle = colours.focus; draw.lineWidth = 2.5;
      draw.strokeRect(focused.x + 1, focused.row * high + 1, Math.max(2, focused.width - 3), high - 3);
    }
    flame.boxes = placed; flame.high = high; flame.zoom = zoom;
    $('flame-out').disabled = zoom === 0;
    const crumbs = callers.map((at, row) => element('button', { type: 'button', 'data-row': row, title: boxes[at].words }, clip(brief(boxes[at].words), 60)));
    update('flame-path', ...(zoom === 0 ? [] : crumbs.flatMap((crumb, at) => at ? [' › ', crumb] : [crumb])), ` ${boxWords(boxes[zoom], true)}`,
      ...(search ? [element('b', {}, `  “${flame.search}”: ${figure(found)} J, ${shareOfRun(found)}`)] : []));
    describe('flame-picture', { 'aria-label': `Flame graph of ${boxWords(boxes[zoom], true)}` });
    if (!isFocused) readFlame();
    if ($('flame-table').parentNode.open) drawFlameTable(boxes, zoom, whole);
  }
  function drawFlameTable(boxes, zoom, whole) {
    const inside = new Set([zoom]), rows = [];
    boxes.forEach((box, at) => {
      if (at !== zoom && !inside.has(box.caller)) return;
      inside.add(at);
      if (at !== 0) rows.push({ words: clip(pathOf(boxes, at).join(' > '), 400), name: box.words, joules: box.own, sum: box.sum, dynamic: box.dynamic, part: whole > 0 ? box.own / whole : 0, calls: box.calls, waited_joules: box.waited, caused_waiting_joules: box.caused, last: 0 });
    });
    const hasWaits = rows.some(row => row.waited_joules || row.caused_waiting_joules);
    const at = tableOf('flame-table', [number('joules', 'J', figure), BAR, number('sum', 'inclusive J', figure), ...(boxes[0].dynamic == null ? [] : [number('dynamic', 'inclusive dynamic J', figure, { show: (row, largest) => row.dynamic == null ? '' : figure(row.dynamic, largest) })]), ...(hasWaits ? waitColumns(() => false) : []), number('calls', 'calls', countOfCalls, { minor: true, help: PATH_CALLS, show: row => countOfPath(row.calls, row.name) }), { key: 'words', title: 'call path', kind: () => 'name' }], { caption: 'Joules of call paths' });
    at.set(rows);
    at.search(flame.search);
  }
  // A run without an energy counter has shares of time. In this case, the first box has the whole time.
  const shareOfRun = part => page.totals.joules > 0 ? `${share(part, page.totals.joules)} ${OF_TOTAL}` : `${share(part, flame.tree[0].sum)} ${OF_TIME}`;
  function boxWords(box, isShort) {
    const own = box.calls === null || box.kind === 'whole' || isShort ? '' : `\n${figure(box.own)} J in itself, ${box.calls ? `${count(box.calls)} call${box.calls === 1 ? '' : 's'}` : countOfPath(box.calls, box.words)}${box.waited ? `\n${figure(box.waited)} J of them waiting in MPI` : ''}${box.caused ? `\nothers used ${figure(box.caused)} J waiting for it` : ''}`;
    const part = box.dynamic == null ? '' : ` (${figure(box.dynamic)} dynamic)`;
    return `${clip(box.words, 300)}: ${figure(box.sum)} J${part}, ${shareOfRun(box.sum)}${own}`;
  }
  function readFlame() {
    const boxes = flame.tree, at = flame.focus, siblings = at === 0 ? [0] : boxes[boxes[at].caller].below;
    read('flame-picture', id => element('div', { id, role: 'treeitem', 'aria-level': flame.focused.length + 1, 'aria-setsize': siblings.length, 'aria-posinset': siblings.indexOf(at) + 1 }, boxWords(boxes[at])));
  }
  function toBox(at) {
    flame.focused = pathOf(flame.tree, at);
    drawFlame();
    readFlame();
  }
  function zoomTo(at) {
    flame.path = pathOf(flame.tree, at);
    toBox(at);
  }
  function moveFlame(key) {
    const boxes = flame.tree, at = flame.focus, box = boxes[at], siblings = boxes[box.caller].below, place = siblings.indexOf(at);
    const next = { ArrowUp: at === 0 ? 0 : box.caller, ArrowDown: box.below[0], ArrowLeft: at && siblings[place - 1], ArrowRight: at && siblings[place + 1] }[key];
    if (next === undefined || next === 0 && key !== 'ArrowUp') return;
    toBox(next);
  }
  function drawChoices() {
    const same = (at, words) => at.children.length === words.length && words.every((word, index) => at.children[index].textContent === word);
    const titles = tables.flames.map(of => clip(of.title, 60));
    if (!same($('flame-of'), titles)) fill('flame-of', ...titles.map((title, at) => element('option', { value: at }, title)));
    $('flame-of').value = flameAt();
    const ranks = ['all'].concat(isLive ? tables.ranks.each : tables.ranks.label);
    text('flame-rank-what', isRank(ranks[1] ?? '0') ? 'Rank' : 'Process');
    if (!same($('flame-rank'), ranks)) fill('flame-rank', ...ranks.map((rank, at) => element('option', { value: at ? rank : '', selected: rank === flame.rank }, rank)));
  }

  // ---- devices, call paths, quality ----

  function drawDevices() {
    show('devices', page.devices.length);
    const at = $('devices-list');
    const keys = page.devices.map(of => of.node + '\0' + of.name).join('\0');
    if (at.dataset.keys !== keys) {
      at.dataset.keys = keys;
      fill(at, ...page.devices.map((of, index) => element('details', { class: 'device', 'data-device': of.name, ontoggle: () => drawDevice(index) },
        element('summary', {}, element('strong', {}, of.name), element('span', { class: 'number' }), element('span', { class: 'small' })), element('div', {}))));
      const other = page.other_devices;
      if (other.rows.length) {
        const more = element('details', { class: 'device' }, element('summary', {}, `${count(other.rows.length + other.left_out)} more devices, with less each`), element('div', { class: 'scroll' }));
        at.append(more);
        table(more.lastChild, [number('joules', 'total', figure), { key: 'unit', title: 'unit' }, { key: 'words', title: 'device', kind: () => 'name' }, { key: 'node', title: 'node' }, { key: 'most_in', title: 'most in', kind: () => 'name' }], { caption: 'More devices' })
          .set(other.rows.map(row => ({ ...row, words: row.name, last: 0 })));
        if (other.left_out) more.append(element('p', { class: 'small' }, `and ${count(other.left_out)} more in summary.json`));
      }
    }
    page.devices.forEach((of, index) => {
      const [, total, about] = at.children[index].firstChild.children;
      total.textContent = `${figure(of.joules)} ${of.unit}`;
      total.dataset.value = of.joules;
      about.textContent = [`on ${of.node}`, of.watts == null ? of.mean_watts == null ? '' : `${watts(of.mean_watts)} on average` : `${watts(of.watts)} now`, of.energy, of.within && `within ${of.within}`, of.stale && 'STALE'].filter(Boolean).join(', ');
      about.className = of.stale ? 'bad' : 'small';
      if (at.children[index].open) drawDevice(index);
    });
  }
  function drawDevice(index) {
    const of = page.devices[index], at = $('devices-list').children[index], inside = at.lastElementChild;
    if (!at.open || !of) return;
    const remarks = [`${of.metric}, ${of.source}, ${count(of.samples)} samples`].concat(of.stale ? ['STALE: the counter stood still when last seen'] : [], of.remarks);
    const views = tables.views.filter(view => view.device === index);
    if (inside.children.length !== 1 + views.length) fill(inside, element('div', {}), ...views.map(() => element('div', {}, element('h3', {}), element('p', { class: 'small' }), element('div', { class: 'scroll' }), element('p', { class: 'small' }), element('div', { class: 'scroll' }))));
    update(inside.firstChild, ...remarks.map(words => element('p', { class: 'small' }, words)));
    views.forEach((view, index) => {
      const [title, about, rows, foot, groups] = inside.children[1 + index].children, unit = of.unit;
      title.textContent = view.title;
      about.textContent = `${view.policy}, ${view.sharing}: ${figure(view.attributed_joules)} ${unit} attributed, ${figure(view.idle_joules - view.other_jobs_joules)} ${unit} idle, ${view.other_jobs_joules > 0 ? `${figure(view.other_jobs_joules)} ${unit} of other jobs, ` : ''}${figure(view.lost_joules)} ${unit} lost; conservation error ${view.conservation_error_joules.toExponential(1)} ${unit}`;
      // A device of time has no part of the run's joules.
      const own = view.attributed_joules + view.idle_joules + view.lost_joules, [whole, base] = unit === 'J' ? [page.totals.joules, baseOf(view.rows)] : [own, [OF_TIME, 'of the time of all locations']];
      if (base[0] === OF_DYNAMIC && tables.dynamic_joules == null) base[1] = `of the device's ${figure(view.dynamic_joules)} dynamic J`;
      tableOf(rows, rowColumns(view.rows, view.view === 'kernels' ? 'kernel' : 'function', unit, base), { caption: view.title, large: unit, ...orderOf(view.rows) })
        .set(rowsOf(view.rows, whole, view.idle_joules, view.other_jobs_joules, view.lost_joules, view.dynamic_joules, tables.dynamic_joules ?? view.dynamic_joules));
      foot.textContent = view.remarks.join('; ');
      if (view.groups.name.length > 1) tableOf(groups, [number('joules', unit, figure), ...(orderOf(view.groups).sort ? [number('dynamic_joules', 'dynamic ' + unit, figure)] : []), BAR, { key: 'words', title: 'location group', kind: () => 'name' }], { caption: 'By location group' })
        .set(rowsOf(view.groups, whole, 0, 0, 0, view.dynamic_joules));
    });
  }
  // The innermost functions of a call path, as many as fit into this number of characters.
  function endOf(path, room) {
    let first = path.length - 1;
    for (let length = path[first].length; first > 0 && (length += path[first - 1].length + 3) <= room;) first--;
    return (first > 0 ? '… > ' : '') + path.slice(first).join(' > ');
  }
  function drawPaths() {
    const of = tables.paths;
    show('paths', of.rows.length);
    if (!of.rows.length) return;
    const all = tables.dynamic_joules ?? page.totals.joules;
    // Paths with the same end are shown with more functions.
    const paths = of.rows.map(row => row.path.map(at => brief(name(at)))), ends = paths.map(path => endOf(path, 110));
    const what = whatIs(tables.ranks.label[0] ?? '0');
    text('paths-title', `Call paths on all ${what[1]}`);
    // The call paths of a launcher belong to no rank.
    const ofRanks = (key, title, more) => number(key, title, figure, { show: (row, largest) => row.ranks ? figure(row[key], largest) : '-', ...more });
    tableOf('paths-table', [number('joules', ownUnit(), figure), BAR, ofRanks('least', `least ${what[0]}`, { minor: true }), ofRanks('mean', 'mean', { minor: true }), ofRanks('most', 'most'), number('ranks', what[1], ranks => ranks ? count(ranks) : '-', { minor: true }), number('calls', 'calls', countOfCalls, { minor: true, help: PATH_CALLS, show: row => countOfPath(row.calls, name(row.path.at(-1))) }), ...(of.rows.some(row => row.waited_joules || row.caused_waiting_joules) ? waitColumns(() => false) : []), { key: 'words', title: 'call path', kind: () => 'name', title_of: row => row.whole }].concat(of.rows.some(row => row.far) ? [{ key: 'far', title: 'far from the others', minor: true }] : []), { caption: `Call paths on all ${what[1]}`, large: ownUnit() })
      .set(of.rows.map((row, at) => ({ ...row, words: ends.indexOf(ends[at]) === ends.lastIndexOf(ends[at]) ? ends[at] : endOf(paths[at], 240), whole: row.path.map(name).join(' > '), part: all > 0 ? row.joules / all : 0, last: 0 })));
    const rest = of.others.count ? `and ${count(of.others.count)} more in summary.json: ${figure(of.others.joules)} ${ownUnit()} in all` : '';
    const isSampled = of.rows.some(row => row.calls === 0 && counted.has(name(row.path.at(-1))));
    text('paths-rest', [rest, isSampled ? PATH_CALLS : ''].filter(Boolean).join('. '));
  }
  const UNITS = { J: value => value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) + ' J' : figure(value) + ' J', s: value => value.toFixed(3) + ' s', B: value => (value / 1e6).toFixed(1) + ' MB', ratio: value => (100 * value).toFixed(1) + ' %', '': count };
  // A longer text is on separate lines, below its label.
  const LONG_FACT = 40;
  function drawFacts() {
    for (const id of ['quality', 'monitor']) {
      show(id, page[id].length);
      const list = element('dl', { class: 'facts' }), isNone = fact => fact.value === 0 && !fact.text && fact.unit !== 'J';
      const none = page[id].filter(isNone).map(fact => fact.label.split(':')[0]);
      for (const fact of page[id].filter(fact => !isNone(fact))) list.append(element('dt', { title: fact.help || null }, fact.label), element('dd', { class: [fact.warns ? 'warn' : '', fact.text.length > LONG_FACT ? 'long' : ''].join(' ').trim() || null, 'data-value': fact.value }, ...(fact.warns ? [element('span', { class: 'hidden' }, 'warning: ')] : []), fact.text || UNITS[fact.unit](fact.value)));
      update(id + '-list', list, ...(none.length ? [element('p', { class: 'small' }, `None: ${none.join(', ')}.`)] : []));
    }
    show('assignment', page.assignment.length);
    update($('assignment').querySelector('ul'), ...page.assignment.map(line => element('li', { class: 'small' }, line)));
  }

  // ---- the whole page ----

  function draw() {
    readColours();
    drawHead();
    drawNodes();
    drawPower();
    drawNow();
    if (tables) { drawRows(); drawHeat(); drawWaits(); drawChoices(); drawFlame(); drawDevices(); drawPaths(); }
    drawFacts();
  }
  function take(next) {
    const begun = performance.now();
    page = next;
    if (page.tables) {
      tables = page.tables;
      isMpi.clear();
      for (const at of tables.mpi) isMpi.add(tables.names[at]);
      counted.clear();
      tables.functions.name.forEach((at, row) => tables.functions.calls?.[row] > 0 && counted.add(tables.names[at]));
      shorts.clear();
      tables.short_names.forEach((short, at) => short && shorts.set(tables.names[at], short));
    }
    takePower();
    show('ask', false);
    show('main', true);
    draw();
    // Values for tests and for debugging.
    window.ampere = { page, updates: (window.ampere ? window.ampere.updates : 0) + 1, milliseconds: performance.now() - begun };
  }

  // ---- input ----

  let isLive = false;
  for (const id of ['nodes', 'python', 'functions', 'kernels']) $(id + '-search').addEventListener('input', event => { const found = made.get(id + '-table')?.table.search(event.target.value); say(`${found} found`); });
  $('heat-scale').addEventListener('change', () => drawHeat());
  $('heat-more').addEventListener('click', () => { isWholeHeat = !isWholeHeat; drawHeat(); });
  for (const id of ['heat', 'waits', 'flame', 'now']) $(id + '-table').parentNode.addEventListener('toggle', () => page && draw());
  $('power-form').addEventListener('click', () => { asStrips = $('power-form').getAttribute('aria-pressed') !== 'true'; drawPower(); });
  const powerPicture = $('power-picture');
  powerPicture.addEventListener('pointermove', event => {
    moment = drawPower.time(event.offsetX);
    if (drag) drag[1] = moment;
    drawPower();
    const here = drawPower.lane(event.offsetY), words = (here ? [here] : lanesShown().slice(0, LINES_MAX)).map(of => laneWords(of, moment));
    const values = power.slice(0, 2 * LINES_MAX).map(({ of, steps }) => `${label(of)}: ${watts((at_time(steps, moment) || [])[2])}`);
    tip(event, [`at ${clock(moment, drawPower.shown)}`].concat(here ? words.concat(values) : values.concat(words)).join('\n'));
  });
  powerPicture.addEventListener('pointerleave', () => { tip(); moment = null; drawPower(); });
  // Dragging over an interval enlarges it, unless the interval is at most 1 % of the shown time.
  powerPicture.addEventListener('pointerdown', event => { if (event.button === 0) { drag = [drawPower.time(event.offsetX), drawPower.time(event.offsetX)]; powerPicture.setPointerCapture(event.pointerId); } });
  powerPicture.addEventListener('pointerup', () => {
    const [from, to] = (drag || [0, 0]).slice().sort((a, b) => a - b);
    drag = null;
    if (to - from > drawPower.shown / 100) zoomPower([from, to]); else drawPower();
  });
  powerPicture.addEventListener('pointercancel', () => { drag = null; drawPower(); });
  powerPicture.addEventListener('dblclick', () => zoomPower(null));
  for (const id of Object.keys(GAUGES)) $(id).addEventListener('click', () => { gaugeShown[id] = $(id).getAttribute('aria-pressed') !== 'true'; drawPower(); });
  $('power-out').addEventListener('click', () => { zoomPower(null); powerPicture.focus(); });
  powerPicture.addEventListener('keydown', event => {
    const step = drawPower.step, from = moment ?? drawPower.end;
    const [first, last] = drawPower.span, to = { ArrowLeft: from - step, ArrowRight: from + step, Home: first, End: last }[event.key];
    const factor = { '+': 0.5, '-': 2 }[event.key], length = factor * drawPower.shown;
    if (event.key === 'Escape') { zoomPower(null); readPower(null); }
    if (factor) zoomPower(length >= drawPower.end ? null : [Math.max(0, Math.min(drawPower.end - length, from - length / 2)), 0].map((begin, at, all) => at ? all[0] + length : begin));
    if (to === undefined) return;
    event.preventDefault();
    readPower(Math.max(first, Math.min(last, to)));
  });
  for (const [id, grid] of Object.entries(grids)) {
    const picture = $(id + '-picture');
    picture.addEventListener('pointermove', event => { const at = grid.place(event.offsetX, event.offsetY); tip(event, isCell(id, at) ? grid.words(at) : ''); });
    picture.addEventListener('pointerleave', () => tip());
    picture.addEventListener('click', event => toCell(id, grid.place(event.offsetX, event.offsetY)));
    picture.addEventListener('focus', () => toCell(id, grid.cell || [0, 0]));
    picture.addEventListener('keydown', event => {
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      toCell(id, [grid.cell[0] + move[0], grid.cell[1] + move[1]]);
    });
  }
  const flamePicture = $('flame-picture');
  const boxAt = event => flame.boxes.find(box => box.row === Math.floor(event.offsetY / flame.high) && event.offsetX >= box.x && event.offsetX < box.x + Math.max(1, box.width));
  flamePicture.addEventListener('pointermove', event => { const box = boxAt(event); tip(event, box ? boxWords(flame.tree[box.at]) : ''); });
  flamePicture.addEventListener('pointerleave', () => tip());
  flamePicture.addEventListener('click', event => { const box = boxAt(event); if (box && !['small', 'rest'].includes(flame.tree[box.at].kind)) zoomTo(box.at); });
  flamePicture.addEventListener('focus', () => page && toBox(flame.focus));
  flamePicture.addEventListener('blur', () => page && drawFlame());
  flamePicture.addEventListener('keydown', event => {
    if (event.key.startsWith('Arrow')) { event.preventDefault(); moveFlame(event.key); }
    else if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); zoomTo(flame.focus); }
    else if (event.key === 'Escape' || event.key === 'Backspace') { event.preventDefault(); zoomTo(flame.tree[flame.zoom].caller || 0); }
    else if (event.key === 'Home') { event.preventDefault(); zoomTo(0); }
  });
  // These buttons are removed or disabled when the zoom ends, so the picture gets the focus.
  $('flame-out').addEventListener('click', () => { zoomTo(0); flamePicture.focus(); });
  $('flame-path').addEventListener('click', event => { const { row } = event.target.dataset; if (row) { zoomTo(find(flame.tree, flame.path.slice(0, row))); flamePicture.focus(); } });
  $('flame-search').addEventListener('input', event => { flame.search = event.target.value.trim(); drawFlame(); say($('flame-path').querySelector('b')?.textContent || ''); });
  $('flame-of').addEventListener('change', event => { flame.of = +event.target.value; flame.path = flame.focused = []; drawFlame(); });
  $('flame-colour').addEventListener('change', event => { flame.byWaits = event.target.value === 'waits'; drawFlame(); });
  $('flame-rank').addEventListener('change', event => { flame.rank = event.target.value; if (isLive) connection.again(); drawFlame(); });
  document.addEventListener('keydown', event => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    $('flame-search').focus();
  });
  let resized = 0;
  new ResizeObserver(() => { cancelAnimationFrame(resized); resized = requestAnimationFrame(() => page && draw()); }).observe(document.body);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => page && draw());

  // ---- the collector ----

  // A stream of events ends after half a minute, and the page requests the next one. So no stream of a closed page remains. If a
  // stream does not end, the collector or a tunnel to it hangs.
  const STREAM_MS_MAX = 45000;
  const connection = {
    stop: null, isOver: false, failures: 0,
    again() { if (this.stop) this.stop.abort(); },
    token() { return decodeURIComponent((location.hash.match(/(?:^#|&)token=([^&]*)/) || [])[1] || ''); },
    async run() {
      while (!this.isOver) {
        const stop = this.stop = new AbortController();
        const silence = setTimeout(() => { this.failures = 1; stop.abort(new Error('no answer')); }, STREAM_MS_MAX);
        try {
          const token = this.token();
          if (!token && document.body.dataset.token === 'wanted') return this.ask(false);
          const headers = token ? { Authorization: 'Bearer ' + token } : {};
          const answer = await fetch('events' + (flame.rank ? '?rank=' + tables.ranks.each.indexOf(flame.rank) : ''), { headers, cache: 'no-store', signal: stop.signal });
          if (answer.status === 401) return this.ask(token !== '');
          if (!answer.ok) throw new Error(answer.statusText);
          await this.read(answer.body.getReader());
          this.failures = 0;
        } catch (why) {
          if (why.name !== 'AbortError' && ++this.failures >= 2 && !this.isOver) setState('lost');
          await new Promise(done => setTimeout(done, why.name === 'AbortError' ? 0 : Math.min(10000, 500 * this.failures)));
        } finally {
          clearTimeout(silence);
        }
      }
    },
    async read(reader) {
      const decoder = new TextDecoder();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        rest += decoder.decode(value, { stream: true });
        const events = rest.split('\n\n');
        rest = events.pop();
        // If several messages have waited, all are taken, because each has the power of another second.
        for (const event of events) {
          const data = event.split('\n').filter(line => line.startsWith('data:')).map(line => line.slice(5)).join('\n');
          if (!data) continue;
          take(JSON.parse(data));
          this.failures = 0;
          if (page.state !== 'running') { this.isOver = true; return; }
        }
      }
    },
    ask(wasWrong) {
      show('main', false);
      show('ask', true);
      text('state', 'a token is needed');
      text('refused', wasWrong ? 'The collector refuses this token.' : '');
      $('token').focus();
    },
  };
  $('ask').addEventListener('submit', event => {
    event.preventDefault();
    history.replaceState(null, '', '#token=' + encodeURIComponent($('token').value));
    connection.run();
  });

  const embedded = $('data');
  if (embedded) take(JSON.parse(embedded.textContent));
  else { isLive = true; text('state', 'waiting for the run'); connection.run(); }
})();
