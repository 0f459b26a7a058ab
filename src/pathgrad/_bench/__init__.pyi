from .gradients import measure_flow as measure_flow
from .images import measure_images as measure_images
