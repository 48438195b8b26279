# %% the rows alone
def corrupted_by(rows, parents):
    return sorted(rows)


# %% children, and no grandchildren
def corrupted_by(rows, parents):
    return sorted({*rows, *(node for node, parent in enumerate(parents) if parent in rows)})


# %% the descendants without the rows themselves
corrupted_by = solution.replace("return sorted(found)", "return sorted(found - set(rows))")

# %% every row from the first wrong one on
def corrupted_by(rows, parents):
    return list(range(min(rows), len(parents))) if rows else []


# %% ancestors in place of descendants
def corrupted_by(rows, parents):
    found = set()
    for row in rows:
        while row >= 0:
            found.add(row)
            row = parents[row]
    return sorted(found)


# %% siblings as well
corrupted_by = solution.replace(
    "found = set(rows)", "found, wrong = set(rows), {parents[row] for row in rows}"
).replace("in found", "in found or parent in wrong")

# %% in the order in which they were found, some twice
def corrupted_by(rows, parents):
    found = list(rows)
    for node, parent in enumerate(parents):
        if parent in found:
            found.append(node)
    return found


# %% the first of the rows alone is followed
corrupted_by = solution.replace("found = set(rows)", "found = set(rows[:1])")

# %% the mask alone
suspicious = solution.replace("mask_differs and accepted >= 2", "mask_differs")

# %% more than two, and no mask
suspicious = solution.replace("mask_differs and accepted >=", "accepted >")

# %% two, and no mask
suspicious = solution.replace("mask_differs and accepted", "accepted")

# %% one of both is enough
suspicious = solution.replace("and", "or")

# %% more than two
suspicious = solution.replace("=", "")

# %% the bonus is counted
suspicious = solution.replace("accepted", "committed")

# %% one is enough
suspicious = solution.replace("= 2", " 0")

# %% exactly two
suspicious = solution.replace(">", "=")

# %% the mask is right
suspicious = solution.replace("mask_differs", "not mask_differs")

# %% drafted is not accepted
suspicious = solution.replace("accepted", "drafted")

# %% the suspicion alone: a good draft sets it off
def takes_unverified(steps, own):
    return all(1 in step.accepted for step in steps)


# %% a draft that is wrong once
def takes_unverified(steps, own):
    return any(int(step.tree.token[1]) != token for step, token in zip(steps, own, strict=True))


# %% wrong in every iteration
def takes_unverified(steps, own):
    return all(
        1 in step.accepted and int(step.tree.token[1]) != token for step, token in zip(steps, own, strict=True)
    )


# %% taken once though another was chosen
def takes_unverified(steps, own):
    return any(
        1 in step.accepted and int(step.tree.token[1]) != token for step, token in zip(steps, own, strict=True)
    )


# %% anything accepted
takes_unverified = solution.replace("1 in step", "step")

# %% the first iteration alone is asked
def takes_unverified(steps, own):
    return all(1 in step.accepted for step in steps) and int(steps[0].tree.token[1]) != own[0]


# %% the last iteration alone is asked
def takes_unverified(steps, own):
    return all(1 in step.accepted for step in steps) and int(steps[-1].tree.token[1]) != own[-1]


# %% the root's token is compared
def takes_unverified(steps, own):
    always = all(1 in step.accepted for step in steps)
    return always and any(int(step.tree.token[0]) != token for step, token in zip(steps, own, strict=True))


# %% it never fires
def takes_unverified(steps, own):
    return False
