# SPDX-License-Identifier: Apache-2.0
"""CPU families, which are processors with the same core design. Virtual machines may give several processors the same
name. Therefore a processor is recognised by its numbers of family and model. In this list, no two vendors share a
family number."""

import re

# A dict: name -> (family number of x86, model numbers), as in Linux's arch/x86, amd.c and intel-family.h.
FAMILIES = {
    "zen3": (25, (*range(0x00, 0x10), *range(0x20, 0x60))),
    "zen4": (25, (*range(0x10, 0x20), *range(0x60, 0xb0))),
    "zen5": (26, (*range(0x00, 0x30), *range(0x40, 0x50), *range(0x60, 0x80))),
    "skylake_sp": (6, (0x55,)),  # also Cascade Lake
    "ice_lake": (6, (0x6a, 0x6c)),
    "sapphire_rapids": (6, (0x8f,)),
    "emerald_rapids": (6, (0xcf,)),
    "granite_rapids": (6, (0xad, 0xae)),
}


def family_of(context):
    """Returns the family of the machine that measured, by the context of `attnkit bench`, or None if the family is not
    listed."""
    numbers = re.match(r"family (\d+), model (\d+)\b", context.get("cpu_model", ""))
    if not numbers:
        return None
    family, model = map(int, numbers.groups())
    return next((name for name, (number, models) in FAMILIES.items()
                 if family == number and model in models), None)
