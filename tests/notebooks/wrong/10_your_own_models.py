# %% eight digits after the first
spacing = solution.replace("7", "8")

# %% one digit too few
spacing = solution.replace("7", "6")

# %% as if all numbers lay between 1 and 2
def spacing(number):
    return 2.0**-7


# %% in proportion to the number
def spacing(number):
    return number / 128


# %% the power of two above
spacing = solution.replace("import floor", "import ceil").replace("floor", "ceil")

# %% float16's spacing
spacing = solution.replace("7", "10")

# %% whole powers only from 1 on
spacing = solution.replace("return 2.0 ** (floor(log2(number)) - 7)", "return 2.0 ** (max(0, floor(log2(number))) - 7)")

# %% one error, not two
can_flip = solution.replace("2 * error", "error")

# %% a gap of just twice the error is safe
can_flip = solution.replace("<=", "<")

# %% the first two, in the order given
def can_flip(logits, error):
    return len(logits) > 1 and abs(logits[0] - logits[1]) <= 2 * error


# %% the largest against the smallest
def can_flip(logits, error):
    return len(logits) > 1 and max(logits) - min(logits) <= 2 * error


# %% the two smallest
def can_flip(logits, error):
    first, second = sorted([*logits, float("inf")])[:2]
    return second - first <= 2 * error


# %% among different values alone: a tie is not seen
can_flip = solution.replace('[*logits, -float("inf")]', '{*logits} | {-float("inf")}')

# %% relative to the largest
can_flip = solution.replace("* error", "* error * abs(first)")

# %% a row of one logit flips as well
def can_flip(logits, error):
    first, second = sorted([*logits, *logits[:1]], reverse=True)[:2]
    return len(logits) == 1 or first - second <= 2 * error


# %% decimal fractions: exact in float64 after float32
three = solution.replace("1e30, -1e30, 1.0", "0.1, 0.2, 0.3")

# %% whole numbers
three = solution.replace("1e30, -1e30, 1", "1.0, 2.0, 3")

# %% the large one is not cancelled
three = solution.replace("-1e30", "1.0")

# %% the large ones are added first on either side
three = solution.replace("-1e30, 1.0", "1e30, -1e30")

# %% not finite in float32
three = solution.replace("1e30, -1e30", "1e300, -1e300")

# %% enough for float32, not for float64
three = solution.replace("1e30, -1e30", "1e8, -1e8")

# %% four numbers
three = solution.replace("1.0", "1.0, 1.0")
