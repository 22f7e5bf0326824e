"""Base images: how they are made (`build`), and where the server finds them (`images`)."""
