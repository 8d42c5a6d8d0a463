"""What is modelled: frozen data classes, no behaviour beyond looking names up."""
