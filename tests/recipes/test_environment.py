"""`softlook info` and `softlook doctor`."""

from softlook.recipes.environment import doctor, info


def test_info_contains_what_a_bug_report_needs() -> None:
    assert info().keys() >= {"softlook", "python", "system", "device", "torch", "sacrebleu"}


def test_all_checks_pass() -> None:
    assert [one.name for one in doctor() if not one.ok] == []
