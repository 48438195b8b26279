"""An iteration that stays beside later ones, such as the one before the settings were changed."""
