const rows = [...document.querySelectorAll('#verdicts tbody tr')];
const asked = [...document.querySelectorAll('.filters [data-key]')];
function filter() {
  let shown = 0;
  for (const row of rows) {
    const fits = asked.every(box => {
      const want = box.value.toLowerCase();
      const has = row.dataset[box.dataset.key].toLowerCase();
      return !want || (box.tagName === 'SELECT' ? has === want : has.includes(want));
    });
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById('shown').textContent = shown + ' of ' + rows.length;
}
asked.forEach(box => box.addEventListener('input', filter));
function open_target() {
  const target = document.getElementById(location.hash.slice(1));
  for (let box = target; box; box = box.parentElement) if (box.tagName === 'DETAILS') box.open = true;
  if (target) target.scrollIntoView();
}
addEventListener('hashchange', open_target);
if (rows.length) filter();
open_target();
