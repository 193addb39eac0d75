"""How keys and values are quantised: the reference in plain torch, which the compiled kernels are held against.

formats   what a number becomes (int8, fp8, even steps, codebook) once it has a scale, and how a scale is fitted
sharing   which numbers share a scale (the granularity), and which slots can be packed at all
slots     both together on the slots of one layer, rotation included
bits      codes packed without a gap; how many bytes a slot takes
fp8, codebook, rotation   the parts
"""
