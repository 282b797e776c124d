// Opens a page in Chromium, and prints as JSON what its accessibility tree has for a screen reader. node reader.js URL
// For a live page, it makes the file $MARK, and waits until there is $MARK.stopped: then the collector does not answer.
'use strict';
const { chromium } = require('playwright-core');
const { execFileSync } = require('child_process');
const fs = require('fs');

async function main([url]) {
  const executablePath = execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
  const browser = await chromium.launch({ executablePath, timeout: 120000, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  await page.clock.install();
  await page.goto(url);
  const isLive = url.startsWith('http'), updates = () => page.evaluate(() => window.ampere?.updates ?? 0);
  const until = async (what, is) => { for (let turn = 0; !await is(); turn++) { if (turn > 600) throw new Error(what); await new Promise(done => setTimeout(done, 100)); } };
  const after = async more => { const from = await updates(); await until('no updates', async () => await updates() >= from + more); };
  await until('nothing is drawn', async () => await updates() > 0);
  const session = await page.context().newCDPSession(page);
  await session.send('Accessibility.enable');
  const tree = async () => (await session.send('Accessibility.getFullAXTree')).nodes;
  const property = (node, name) => node.properties?.find(of => of.name === name)?.value;
  const words = node => ({ role: node.role.value, name: node.name?.value ?? '', level: property(node, 'level')?.value });
  const inside = (nodes, of, role) => (of.childIds ?? []).flatMap(id => nodes.filter(node => node.nodeId === id)).flatMap(node => node.role?.value === role ? [node] : inside(nodes, node, role));
  // The focused element, and the place in it that the arrow keys have selected.
  const focused = async () => {
    const nodes = await tree(), at = nodes.filter(node => property(node, 'focused')?.value).pop();
    if (!at) return null;
    const place = property(at, 'activedescendant')?.relatedNodes?.[0].backendDOMNodeId;
    return { ...words(at), place: place && words(nodes.find(node => node.backendDOMNodeId === place)) };
  };
  const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key); return focused(); };
  const result = { state: await page.textContent('#state') };
  // The elements in the order of the Tab key.
  result.order = [];
  for (let at = await press('Tab'); at && at.role !== 'RootWebArea' && result.order.length < 60; at = await press('Tab')) result.order.push(at);
  const nodes = await tree();
  result.tables = nodes.filter(node => !node.ignored && node.role.value === 'table').map(table => {
    const rows = inside(nodes, table, 'row');
    return { name: table.name.value, heads: rows.flatMap(row => inside(nodes, row, 'columnheader')).map(head => head.name.value), rows: rows.map(row => inside(nodes, row, 'rowheader').map(head => head.name.value)).slice(1) };
  });
  await page.focus('#heat-picture');
  result.heat = [await press('Home'), await press('ArrowRight'), await press('ArrowDown')];
  // An update may remove the row of the selected cell.
  await page.evaluate(() => {
    const { heat } = window.ampere.page.tables;
    heat.name.length = heat.joules.length = 1;
    document.getElementById('heat-scale').dispatchEvent(new Event('change'));
  });
  result.heat.push(await press('ArrowRight'));
  await page.focus('#flame-picture');
  result.flame = [await press('Home'), await press('ArrowDown'), await press('ArrowDown'), await press('Enter')];
  await page.focus('#power-picture');
  const value = () => page.getAttribute('#power-picture', 'aria-valuetext');
  result.power = [await value(), await press('Home') && await value(), await press('End') && await value()];
  // On a live page, updates must not move the focus.
  await page.focus('#flame-path button');
  if (isLive) {
    // What a screen reader announces without a key: changes of live regions, of the focused element, and of its name.
    await page.evaluate(() => {
      window.first = document.querySelector('#power-legend li');
      window.announced = [];
      const watch = at => new MutationObserver(all => window.announced.push(...all.map(change => `${change.target.id || change.target.nodeName} ${change.attributeName || ''}`))).observe(at, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ['aria-label', 'aria-valuetext', 'aria-valuenow', 'aria-activedescendant'] });
      document.querySelectorAll('[aria-live], [role=status], [role=alert]').forEach(watch);
      watch(document.getElementById('power-picture'));
      watch(document.getElementById('flame-picture'));
    });
    for (const id of ['flame-picture', 'power-picture']) { await page.focus('#' + id); await page.evaluate(() => { window.announced = []; }); await after(3); (result.announced ??= []).push(await page.evaluate(at => window.announced.filter(of => of.startsWith(at) || !of.includes('picture')), id)); }
    await page.focus('#flame-path button');
    await after(2);
    result.stays = await page.evaluate(() => [window.first.isConnected, document.activeElement.textContent]);
    fs.writeFileSync(process.env.MARK, '');
    await until('it is not stopped', () => fs.existsSync(process.env.MARK + '.stopped'));
    await page.clock.fastForward(60000);
    const state = () => page.textContent('#state');
    await until('the page does not see it', async () => await state() === 'connection lost');
    result.lost = (await tree()).some(node => !node.ignored && node.name?.value === 'connection lost');
  }
  await browser.close();
  console.log(JSON.stringify(result));
}
main(process.argv.slice(2)).catch(error => { console.error(error); process.exit(1); });
