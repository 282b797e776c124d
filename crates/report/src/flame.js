// A click on a box makes it as wide as the picture. The boxes below it (the functions that it calls) are scaled with it, those of
// its callers above it become as wide as the picture, too, and all others disappear.
document.addEventListener('click', function (event) {
  var box = event.target.closest('.flame g');
  if (!box) return;
  var picture = box.closest('.flame'), whole = picture.viewBox.baseVal.width;
  var left = +box.dataset.left, width = +box.dataset.width, row = +box.dataset.row;
  picture.querySelectorAll('g').forEach(function (other) {
    var from = +other.dataset.left, size = +other.dataset.width, above = +other.dataset.row < row;
    var contains = above && from <= left + 0.01 && from + size >= left + width - 0.01;
    var inside = !above && from >= left - 0.01 && from + size <= left + width + 0.01;
    other.style.display = contains || inside ? '' : 'none';
    if (!contains && !inside) return;
    var x = contains ? 0 : (from - left) * whole / width, w = contains ? whole : size * whole / width;
    other.querySelector('rect').setAttribute('x', x);
    other.querySelector('rect').setAttribute('width', w);
    var paler = other.querySelector('.static');
    if (paler) {
      paler.setAttribute('x', x + w * (1 - paler.dataset.part));
      paler.setAttribute('width', w * paler.dataset.part);
    }
    var text = other.querySelector('text'), room = Math.floor((w - 6) / 6.6), name = other.dataset.name;
    text.setAttribute('x', x + 3);
    text.textContent = room < 3 ? '' : name.length <= room ? name : name.slice(0, room - 1) + '…';
  });
});
