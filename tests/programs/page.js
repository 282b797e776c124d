// Opens a page in Chromium, uses it like a person, and prints what it showed as JSON: node page.js URL WIDTH [SCREENSHOT]
// For a live page, it makes the file $MARK and waits until the run has ended.
'use strict';
const { chromium } = require('playwright-core');
const { execFileSync } = require('child_process');

async function main([url, width, screenshot]) {
  const executablePath = execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
  const browser = await chromium.launch({ executablePath, timeout: 120000, ignoreDefaultArgs: ['--hide-scrollbars'], args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  const page = await browser.newPage({ viewport: { width: +width, height: 1000 } });
  page.setDefaultTimeout(120000);
  const result = { errors: [], requests: [] };
  page.on('console', message => { if (['error', 'warning'].includes(message.type())) result.errors.push(message.text()); });
  page.on('pageerror', error => result.errors.push(String(error)));
  page.on('request', request => result.requests.push(request.url()));
  await page.goto(url);
  if (process.env.TOKEN) {
    await page.fill('#token', process.env.TOKEN);
    await page.press('#token', 'Enter');
  }
  const isLive = url.startsWith('http');
  await page.waitForFunction(least => window.ampere && window.ampere.updates >= least, isLive ? 3 : 1, { timeout: 60000 });
  const shown = () => page.evaluate(() => ({
    state: document.getElementById('state').textContent,
    totals: Object.fromEntries([...document.querySelectorAll('#totals > div')].map(tile => [tile.id, +tile.dataset.value])),
    functions: [...document.querySelectorAll('#functions-table tbody tr')].map(row => [row.querySelector('.name').title || row.querySelector('.name').textContent, +row.cells[0].dataset.value]),
    devices: [...document.querySelectorAll('#devices-list .device')].map(device => [device.dataset.device, +device.querySelector('.number').dataset.value]),
    facts: Object.fromEntries([...document.querySelectorAll('.facts dt')].map(at => [at.textContent, +at.nextSibling.dataset.value])),
    now: [...document.querySelectorAll('#now-bars li')].map(bar => bar.textContent),
    milliseconds: window.ampere.milliseconds, updates: window.ampere.updates,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    painted: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
  }));
  result.first = await shown();
  const words = id => page.evaluate(id => document.getElementById(id).textContent, id);
  // The text for a screen reader about the selected place in a picture.
  const place = id => page.evaluate(id => document.getElementById(document.getElementById(id).getAttribute('aria-activedescendant')).textContent, id);
  // This uses the flame graph with the keyboard.
  await page.focus('#flame-picture');
  for (const key of ['Home', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
  result.said = await place('flame-picture');
  result.zoomed = await words('flame-path');
  result.focus = await page.evaluate(() => document.activeElement.id);
  await page.keyboard.press('Escape');
  result.whole = await words('flame-path');
  await page.keyboard.press('/');
  await page.keyboard.type('STEP');
  result.searched = await words('flame-path');
  await page.fill('#flame-search', '');
  // This uses the mouse: the middle of the second row is the function that was called first.
  const box = await page.locator('#flame-picture').boundingBox(), row = await page.evaluate(() => Math.round(1.42 * parseFloat(getComputedStyle(document.documentElement).fontSize)));
  await page.locator('#flame-picture').click({ position: { x: box.width / 4, y: 1.5 * row } });
  result.clicked = await words('flame-path');
  await page.click('#flame-out');
  // This sorts and searches the tables.
  await page.click('#functions-table th:last-child button');
  result.sorted = (await shown()).functions.map(row => row[0]);
  await page.locator('#functions-table th button:visible').first().click();
  await page.fill('#functions-search', 'step');
  result.filtered = (await shown()).functions.map(row => row[0]);
  await page.fill('#functions-search', '');
  await page.focus('#power-picture');
  for (const key of ['Home', 'ArrowRight']) await page.keyboard.press(key);
  result.power = await page.getAttribute('#power-picture', 'aria-valuetext');
  await page.keyboard.press('Escape');
  if (await page.isVisible('#heat-picture')) {
    await page.focus('#heat-picture');
    for (const key of ['ArrowRight', 'ArrowRight']) await page.keyboard.press(key);
    result.heat = await place('heat-picture');
  }
  result.text = await page.evaluate(() => document.body.innerText);
  result.scripts = await page.evaluate(() => [...document.querySelectorAll('script')].length);
  if (process.env.MARK) require('fs').writeFileSync(process.env.MARK, '');
  if (isLive) await page.waitForFunction(() => window.ampere.page.state !== 'running', undefined, { timeout: 60000 });
  result.last = await shown();
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  result.heap = (await session.send('Runtime.getHeapUsage')).usedSize;
  if (screenshot) await page.screenshot({ path: screenshot, fullPage: true });
  await browser.close();
  console.log(JSON.stringify(result));
}
main(process.argv.slice(2)).catch(error => { console.error(error); process.exit(1); });
