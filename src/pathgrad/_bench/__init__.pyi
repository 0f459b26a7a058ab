from .gradients import measure_gradients as measure_gradients
