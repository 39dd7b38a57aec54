"""Labels that name classes become the numbers by which a model knows them."""
