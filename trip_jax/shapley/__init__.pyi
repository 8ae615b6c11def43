from .coalitions import CoalitionRows as CoalitionRows
from .games import Estimate as Estimate
from .games import sample_game as sample_game
from .sampling import ESTIMATORS as ESTIMATORS
from .sampling import draw as draw
from .sampling import estimate as estimate
from .semivalues import SEMIVALUES as SEMIVALUES
from .tables import game_values as game_values
