"""The lab in a browser tab: the shipped models in plain JavaScript, and the page as a folder to serve anywhere."""
