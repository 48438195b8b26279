"""What happened, as plain immutable data: steps and traces, their files, metrics, conditions on
them. No torch.
"""
