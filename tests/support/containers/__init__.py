"""What tests in containers share: the engine, the deployment, faults and traffic."""
