"use strict";
// The page can be read without this script: it adds a switch for dark and light, and values under the pointer.

const root = document.documentElement;
const theme = document.getElementById("theme");
const isDark = () => root.dataset.theme
  ? root.dataset.theme === "dark"
  : matchMedia("(prefers-color-scheme: dark)").matches;
const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
theme.hidden = false;
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();

// Unfold everything for printing.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open])")) {
    each.open = true;
    addEventListener("afterprint", () => { each.open = false; }, { once: true });
  }
});

const forward = { linear: v => v, log: Math.log10, share: v => -Math.log10(1 - v) };
const back = { linear: v => v, log: v => 10 ** v, share: v => 1 - 10 ** -v };
function valueAt(axis, pixel) {
  const [kind, low, high, start, end] = axis.split(" ").map((w, i) => i ? Number(w) : w);
  const [a, b] = [low, high].map(forward[kind]);
  const value = back[kind](a + (b - a) * (pixel - start) / (end - start));
  return kind === "share" ? `${(100 * value).toPrecision(4)} %` : String(Number(value.toPrecision(4)));
}

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

// The points of each labelled curve that lie within the axes: others are cut off.
function pointsOf(chart) {
  const [left, right] = chart.dataset.x.split(" ").slice(3).map(Number);
  const [bottom, top] = chart.dataset.y.split(" ").slice(3).map(Number);
  return [...chart.querySelectorAll("path[data-label]")].flatMap(line =>
    [...line.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)]
      .map(match => ({ x: Number(match[1]), y: Number(match[2]), label: line.dataset.label }))
      .filter(p => p.x > left - 1 && p.x < right + 1 && p.y > top - 1 && p.y < bottom + 1));
}

for (const chart of document.querySelectorAll("svg.chart[data-x]")) {
  const box = chart.viewBox.baseVal;
  let points;
  chart.addEventListener("pointermove", event => {
    points ??= pointsOf(chart);
    const place = chart.getBoundingClientRect();
    const scale = box.width / place.width;
    const [x, y] = [(event.clientX - place.left) * scale, (event.clientY - place.top) * scale];
    const far = p => Math.abs(p.x - x) + 0.25 * Math.abs(p.y - y);
    tip.hidden = !points.length;
    if (tip.hidden) return;
    const nearest = points.reduce((a, b) => far(b) < far(a) ? b : a);
    tip.textContent = `${nearest.label}: ${valueAt(chart.dataset.y, nearest.y)} at ${valueAt(chart.dataset.x, nearest.x)}`;
    const left = place.left + nearest.x / scale;
    tip.style.left = `${scrollX + Math.min(Math.max(left, 90), innerWidth - 100)}px`;
    tip.style.top = `${scrollY + place.top + nearest.y / scale - 12}px`;
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
}
