"""What tests of the product share: rows, pictures, bodies as clients send them, and the services they talk to."""
