# %% corrupted_by: children, and no grandchildren
def corrupted_by(rows, parents):
    return sorted({*rows, *(node for node, parent in enumerate(parents) if parent in rows)})
# %% corrupted_by: the descendants without the rows
# sorted(found) -> sorted(found - {*rows})
# %% corrupted_by: siblings too
# parent in found -> parent in found or parent in {parents[row] for row in rows}
# %% corrupted_by: rows grow
def corrupted_by(rows, parents):
    for node, parent in enumerate(parents):
        if parent in rows and node not in rows:
            rows.append(node)
    return sorted(rows)
# %% positions: counted along the rows
def positions(length, parent):
    return [length + row for row in range(len(parent))]
# %% positions: the depth alone
# [length] -> [0]
# %% positions: the root counted from 1
# [length] -> [length + 1]
# %% positions: behind the row of the parent
# place[above] + 1 -> length + above + 1
# %% takes_unverified: taken once though another was chosen
def takes_unverified(steps, own):
    return any(1 in step.accepted and int(step.tree.token[1]) != token for step, token in zip(steps, own))
# %% takes_unverified: anything accepted
# 1 in step.accepted -> step.accepted
# %% takes_unverified: the first three iterations alone
# zip(steps, own) -> zip(steps[:2], own)
# %% takes_unverified: the root's token
# tree.token[1] -> tree.token[0]
