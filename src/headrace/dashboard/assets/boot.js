// Sets the chosen theme before the first paint. A classic script: modules run too late for that.
(function () {
  try {
    var theme = localStorage.getItem("headrace.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage, the theme is the system's.
  }
})();
