"""One HTML file that shows what documents of deploykit say."""
