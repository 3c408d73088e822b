// From file:// the search page may not read other pages for the sentences around a hit. It takes them from
// search_texts.js, which book/_tools/book_extension.py writes, and loads it with the first hit.
if (location.protocol === "file:") {
  const script = document.createElement("script");
  script.src = new URL("search_texts.js", document.currentScript.src);
  let loaded;
  const load = () =>
    (loaded ??= new Promise((done) => {
      script.onload = script.onerror = done;
      document.head.append(script);
    }));
  window.fetch = async (address) => {
    await load();
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = (window.FEDNB_TEXTS || {})[String(address).replace(/^\.\//, "")] || "";
    return { ok: true, text: async () => main.outerHTML };
  };
}

// The buttons for a notebook and its source save the file instead of showing it.
window.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".dropdown-download-buttons a")) link.setAttribute("download", "");
});

// Row names stay while a wide table scrolls (fednb.css makes them sticky). Several stand side by side, the innermost
// first, as long as half of the width is left for the numbers.
function placeNames(table) {
  const names = [...table.querySelectorAll("tbody th")];
  for (const name of names) name.style.position = "static"; // so that they are measured where they belong
  const right = Math.max(...names.map((name) => name.offsetLeft + name.offsetWidth));
  const room = table.parentElement.clientWidth / 2;
  const places = names.map((name) => name.offsetLeft);
  const inner = Math.max(...places);
  const first = Math.min(inner, ...places.filter((place) => right - place <= room));
  names.forEach((name, i) => {
    name.style.position = "";
    name.style.left = places[i] < first ? "auto" : `${places[i] - first}px`;
  });
}
window.addEventListener("DOMContentLoaded", () => {
  const observer = new ResizeObserver((entries) => entries.forEach((entry) => placeNames(entry.target)));
  for (const table of document.querySelectorAll("article table:has(tbody th + th)")) observer.observe(table);
});

// Letters in a picture that a narrow screen shrinks are small. A button, which fednb.css shows on such screens, gives the
// picture its own size, and it scrolls.
function addEnlarge(picture) {
  const button = document.createElement("button");
  const tell = (large) => {
    button.textContent = large ? "Fit to screen" : "Enlarge";
    button.setAttribute("aria-pressed", large);
    picture.style.maxWidth = large ? "none" : "100%";
  };
  button.className = "fednb-enlarge";
  button.onclick = () => tell(picture.parentElement.classList.toggle("fednb-large"));
  tell(false);
  picture.after(button);
}
window.addEventListener("DOMContentLoaded", () => {
  const pictures = [...document.querySelectorAll("article img.fednb-figure")];
  for (const picture of pictures) if (picture.getAttribute("width") > 450) addEnlarge(picture);
});

// On paper folds are open, but for folded code, which fednb.css leaves out; afterwards those that the reader had closed are closed again.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("article details:not([open])")];
  for (const fold of opened) fold.open = true;
});
window.addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
