"""Legal inputs, runs, comparison, checks, the verdict."""

from surgery.verify.checks import Signature, check, new_findings, signature
from surgery.verify.verdict import Verdict, Verifier, verify_models

__all__ = ["Signature", "Verdict", "Verifier", "check", "new_findings", "signature", "verify_models"]
