class Watch:
    def __init__(self, *a):
        pass

    def look(self):
        return None

    def pulses(self):
        return []

    def pulse(self, rank):
        return None

    def stacks(self):
        pass
