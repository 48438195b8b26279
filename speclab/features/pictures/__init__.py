"""Pictures of the stage: saved as SVG or PNG, and sent to the notebook that is saved."""
