"""What a node tells of keyspaces, and what may be done with them by hand; any node will do."""

from ringpop_py.state_admin.endpoints import ENDPOINTS as ENDPOINTS
from ringpop_py.state_admin.endpoints import READS as READS
