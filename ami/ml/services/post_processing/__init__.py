"""Post-processing: tasks that classify again what is stored, without a processing service. One module each."""
