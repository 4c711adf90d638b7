"""How a command line here names a network: model.json, or model.json:VAR=N,... with variables of the model set."""


def options_of(entry):
    """The model's file, and the options that set its variables."""
    path, _, settings = entry.partition(":")
    return path, [word for setting in settings.split(",") if setting for word in ("--set", setting)]
