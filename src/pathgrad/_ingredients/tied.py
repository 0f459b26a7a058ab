class TiedField:
    pass
