for (const figure of document.querySelectorAll(".neighbourhood")) {
    const discs = figure.querySelectorAll("[role=button]");
    const show = (disc) => {
        for (const other of discs) other.setAttribute("aria-pressed", other === disc);
        figure.querySelector("output").textContent = disc.getAttribute("aria-label");
    };
    for (const disc of discs) {
        disc.addEventListener("click", () => show(disc));
        disc.addEventListener("keydown", (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            show(disc);
        });
    }
}
