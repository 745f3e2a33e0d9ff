// What the theme leaves out for screen readers and keyboards (axe-core finds it).
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.setAttribute("aria-level", "2");
  for (const pre of document.querySelectorAll("pre, .table-wrapper")) pre.tabIndex = 0;
  for (const image of document.querySelectorAll('article p > img[src$=".svg"]')) {
    const place = image.parentElement;  // wider than a phone: it scrolls, with the keyboard too
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  }
  for (const [place, name] of [[".sidebar-drawer", "Pages"], [".toc-drawer", "On this page"]]) {
    document.querySelector(place)?.setAttribute("aria-label", name);
  }
});
