"""The admin site: no secrets shown, actions recorded, values checked."""
