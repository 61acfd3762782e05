"use strict";
// Without this script the first article is shown; with it, the one of the reader's choices.
{
  const form = document.querySelector("form.advised"), fields = [...form.querySelectorAll("select")];
  const articles = [...document.querySelectorAll("article.advised")];
  const show = () => articles.forEach((article) => { article.hidden = fields.some((field) => field.value !== article.dataset[field.id]); });
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}
