"use strict";
// Everything can be read without this: it adds a switch for dark and light, and values under the pointer.

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

// On paper nothing can be unfolded.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open])")) {
    each.open = true;
    addEventListener("afterprint", () => { each.open = false; }, { once: true });
  }
});

const forward = { linear: v => v, log: Math.log10, ess: v => -Math.log10(1 - v) };
const back = { linear: v => v, log: v => 10 ** v, ess: v => 1 - 10 ** -v };
function valueAt(axis, pixel) {
  const [kind, low, high, start, end] = axis.split(" ").map((w, i) => i ? Number(w) : w);
  const [a, b] = [low, high].map(forward[kind]);
  const value = back[kind](a + (b - a) * (pixel - start) / (end - start));
  return kind === "ess" ? `${(100 * value).toPrecision(4)} %` : String(Number(value.toPrecision(4)));
}

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

function nearest(chart, x, y) {
  let best = null;
  for (const line of chart.querySelectorAll("polyline[data-label]")) {
    for (const point of line.points) {
      const far = Math.abs(point.x - x) + 0.25 * Math.abs(point.y - y);
      if (!best || far < best.far) best = { far, point, line };
    }
  }
  return best;
}

for (const chart of document.querySelectorAll("svg.chart")) {
  const box = chart.viewBox.baseVal;
  chart.addEventListener("pointermove", event => {
    const place = chart.getBoundingClientRect();
    const scale = box.width / place.width;
    const found = nearest(chart, (event.clientX - place.left) * scale, (event.clientY - place.top) * scale);
    tip.hidden = !found;
    if (!found) return;
    const { point, line } = found;
    tip.textContent = `${line.dataset.label}: ${valueAt(chart.dataset.y, point.y)} at ${valueAt(chart.dataset.x, point.x)}`;
    const left = place.left + point.x / scale;
    tip.style.left = `${scrollX + Math.min(Math.max(left, 90), innerWidth - 100)}px`;
    tip.style.top = `${scrollY + place.top + point.y / scale - 12}px`;
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
}
