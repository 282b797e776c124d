// Opens a page in Chromium, and prints what it shows as JSON: node shown.js URL WIDTH [NODE]
// NODE is the part of a node's name to search for. It waits for $UPDATES updates, and with $SHOT set it makes $SHOT-WIDTH.png.
'use strict';
const { chromium } = require('playwright-core');
const { execFileSync } = require('child_process');

async function main([url, width, search]) {
  const executablePath = execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
  const browser = await chromium.launch({ executablePath, timeout: 120000, ignoreDefaultArgs: ['--hide-scrollbars'], args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  const page = await browser.newPage({ viewport: { width: +width, height: 1000 } });
  page.setDefaultTimeout(120000);
  const errors = [];
  page.on('console', message => { if (['error', 'warning'].includes(message.type())) errors.push(message.text()); });
  page.on('pageerror', error => errors.push(String(error)));
  // The duration of each update, and whether it had tables.
  await page.addInitScript(() => {
    let last;
    window.updates = [];
    Object.defineProperty(window, 'ampere', { get: () => last, set: now => { last = now; window.updates.push([now.milliseconds, now.page.tables !== null, performance.now()]); } });
  });
  await page.goto(url);
  await page.waitForFunction(least => window.ampere && window.ampere.updates >= least, +process.env.UPDATES || (url.startsWith('http') ? 3 : 1), { timeout: 60000 })
    .catch(error => { throw new Error([...errors, error.message].join('\n')); });
  const shown = () => page.evaluate(() => ({
    total: +document.getElementById('total-joules').dataset.value,
    about: document.getElementById('about').textContent,
    rows: [...document.querySelectorAll('#nodes-table tbody tr')].map(row => [...row.cells].map(cell => cell.textContent)),
    sentences: [...document.querySelectorAll('#sentences li')].map(line => line.textContent),
    heads: [...document.querySelectorAll('#nodes-table thead th')].map(head => head.textContent),
    function_heads: [...document.querySelectorAll('#functions-table thead th')].map(head => head.textContent),
    visible_heads: [...document.querySelectorAll('#functions-table thead th')].filter(head => head.checkVisibility()).map(head => head.textContent),
    explained: ['functions-base', 'functions-rest'].map(id => document.getElementById(id).innerText).join(' '),
    joules: [...document.querySelectorAll('#nodes-table tbody tr')].map(row => +row.cells[1].dataset.value),
    rest: document.getElementById('nodes-rest').textContent,
    functions: [...document.querySelectorAll('#functions-table tbody tr .name')].map(name => name.title || name.textContent),
    python: [...document.querySelectorAll('#python-table tbody tr .name')].map(name => name.title || name.textContent),
    kernels: [...document.querySelectorAll('#kernels-table tbody tr')].map(row => [row.querySelector('.name').title || row.querySelector('.name').textContent, +row.cells[0].dataset.value]),
    titles: [...document.querySelectorAll('main section:not([hidden]) h2')].map(title => title.textContent),
    now: [...document.querySelectorAll('#now-bars li')].map(bar => bar.textContent),
    others: document.getElementById('now-others').textContent,
    heat: document.getElementById('heat-picture').getAttribute('aria-label'),
    waits: [document.getElementById('waits-picture').getAttribute('aria-label'), document.getElementById('waits-whole').textContent],
    heat_rest: document.getElementById('heat-rest').textContent,
    words: document.getElementById('heat-whole').textContent,
    paths: [...document.querySelectorAll('#paths-table tbody tr .name')].map(path => path.textContent),
    path_rows: [...document.querySelectorAll('#paths-table tbody tr')].map(row => row.textContent),
    more: document.querySelector('#functions-table .more:not([hidden])')?.textContent,
    // The table of nodes may be wider than the screen of a phone, so it is not checked.
    cut: [...document.querySelectorAll('.scroll:not(#nodes-table)')].filter(table => table.scrollWidth > table.clientWidth).map(table => table.id),
    flame_rows: document.getElementById('flame-picture').clientHeight / Math.round(1.42 * parseFloat(getComputedStyle(document.documentElement).fontSize)),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  }));
  const result = { ...await shown(), errors, updates: await page.evaluate(() => window.updates) };
  const flame = () => page.evaluate(() => document.getElementById('flame-picture').toDataURL());
  if (await page.isVisible('#flame-colour')) {
    const before = await flame();
    await page.selectOption('#flame-colour', 'waits');
    result.recoloured = await flame() !== before && await page.isVisible('#flame-keys .of-waits');
    // The cell of the second rank that caused the first one to wait.
    await page.focus('#waits-picture');
    await page.keyboard.press('ArrowRight');
    result.cell = await page.evaluate(() => document.getElementById(document.getElementById('waits-picture').getAttribute('aria-activedescendant')).textContent);
  }
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  result.heap = (await session.send('Runtime.getHeapUsage')).usedSize;
  if (process.env.SHOT) await page.screenshot({ path: `${process.env.SHOT}-${width}.png`, fullPage: true });
  if (search) {
    await page.fill('#nodes-search', search);
    result.searched = (await shown()).rows;
  }
  await browser.close();
  console.log(JSON.stringify(result));
}
main(process.argv.slice(2)).catch(error => { console.error(error); process.exit(1); });
