{ // a frame that is cut says so, and its first column stays
  const frames = document.querySelectorAll(".drawing");
  const look = () => frames.forEach(frame => {
    const hidden = frame.scrollWidth - frame.clientWidth - frame.scrollLeft;
    frame.classList.toggle("cut", frame.scrollWidth > frame.clientWidth + 1);
    frame.classList.toggle("more", hidden > 1);
  });
  addEventListener("resize", look);
  document.querySelectorAll("details").forEach(one => one.addEventListener("toggle", look));
  frames.forEach(frame => frame.addEventListener("scroll", look, {passive: true}));
  look();
}
