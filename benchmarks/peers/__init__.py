"""Other engines. The scripts run in environments of their own, where nothing of pwf is: import nothing here."""
