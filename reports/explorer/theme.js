"use strict";
{ // light and dark: as the system says, until the reader chooses
  const button = document.querySelector("#theme"), root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* a page from a file may keep nothing */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* as above */ }
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}
const widths = new ResizeObserver((found) => found.forEach(({target}) => tellWidth(target)));
function tellWidth(frame) { // a frame that is wider than the window says so
  const rest = frame.scrollWidth - frame.clientWidth;
  frame.classList.toggle("cut", rest > 1);
  frame.classList.toggle("more", rest - frame.scrollLeft > 1);
}
function watchWidths() {
  document.querySelectorAll(".drawing, .frame, .doc pre").forEach((frame) => widths.observe(frame));
}
document.addEventListener("scroll", ({target}) => { if (target.matches?.(".cut")) tellWidth(target); }, {capture: true, passive: true});
document.addEventListener("DOMContentLoaded", watchWidths);
