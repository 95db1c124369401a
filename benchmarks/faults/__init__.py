"""A campaign of faults. Its law: the bits of the undisturbed run, or a named error; no hang, nothing left behind."""
