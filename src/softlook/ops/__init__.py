"""The operation: pure functions from tensors to tensors, no parameters."""

from softlook.ops.operation import attention as attention
from softlook.ops.operation import attention_scores as attention_scores
from softlook.ops.operation import attention_weights as attention_weights
from softlook.ops.operation import explain as explain
from softlook.ops.looking import Look as Look
from softlook.ops.looking import attention_and_look as attention_and_look
from softlook.ops.looking import look as look
