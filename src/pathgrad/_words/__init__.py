"""What everything else speaks with: draws, outcomes, errors, trees. It knows nothing else."""
