def defended(flow):
    return flow
