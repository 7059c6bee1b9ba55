"""Whole maths word problems from patterns: coherent ones, which the target seldom writes alone."""

from __future__ import annotations

import random

from engines.training.fill_blanks import filled

_PROBLEMS = """
{name} buys {n} {thing} for ${price} each and {m} {thing2} for ${price2} each. How much does {name} spend in total?
{name} has {m} {thing}. {other} has {n} more than {name}, and {third} has {times} times as many as {other}. How many {thing} do they have altogether?
A {place} sold {m} {thing} on Monday and {times} times as many on Tuesday. On Wednesday it sold {n} fewer than on Tuesday. How many {thing} did it sell in the three days?
{name} earns ${price} an hour and works {n} hours a day, {days} days a week. How much does {name} earn in {weeks} weeks?
There are {n} rows of {m} seats in the {place}. If {days} seats in each row are empty, how many seats are taken?
{name} is {n} years older than {other}. In {days} years {name} will be {m} years old. How old is {other} now?
A {job} makes {n} {thing} an hour and works {days} hours a day. How many days does the {job} need to make {big} {thing}?
{name} had {big} {thing}. {name} gave {n} to {other}, twice as many to {third}, and lost {days}. How many {thing} does {name} have left?
{name} drives {m} miles at {big} miles per hour and then {n} miles at {m} miles per hour. How long does the whole trip take?
A bag of {thing} costs ${price} and a box of {thing2} costs {times} times as much. How much do {n} bags and {days} boxes cost?
{name} saves ${price} a day. A bicycle costs ${big}, and {name} already has ${m}. How many days must {name} save to buy it?
At the {place}, a ticket for an adult costs ${price} and one for a child costs half of that. How much do {n} adults and {days} children pay?
{name} reads {n} pages on each weekday and {m} pages on each day of the weekend. How many weeks does {name} need to read {big} pages?
A tank holds {big} litres. It is filled at {m} litres a minute and leaks {days} litres a minute. How many minutes does it take to fill?
{name} bakes {big} {thing} and puts {n} in each box. How many full boxes are there, and how many {thing} are left over?
{pct}% of the {big} students at a school play football, and half of those also play chess. How many students play both?
A shirt costs ${m}. During a sale its price falls by {pct}%, and {name} has a coupon for ${days} more. What does {name} pay?
{name} has {m} coins, some of 10 cents and some of 25 cents. If {n} of them are 10 cent coins, how much money does {name} have?
The length of a rectangle is {n} metres more than its width, which is {m} metres. What are its perimeter and its area?
{name}, {other} and {third} share ${big}. {name} gets {times} times as much as {other}, and {third} gets ${n}. How much does {other} get?
Every week {name} runs {n} miles on {days} days and walks {times} miles on the other days. How many miles is that in {weeks} weeks?
A farmer has {m} cows and {n} chickens. Each cow eats {days} kilograms of food a day and each chicken {times}. How much food is needed for {weeks} weeks?
{name} needs {n} cups of flour for {days} cakes. How many cups of flour are needed for {m} cakes?
{name} scored {m}, {n} and {big} points in three games. How many points must {name} score in the fourth game for an average of {m}?
A {place} orders {n} boxes with {m} {thing} in each. {pct}% of the {thing} are broken. How many can be sold?
{name} spends {fraction} of the ${big} earned last month on rent and ${m} on food. How much is left?
A bus starts with {m} passengers. At the first stop {n} get off and {days} get on; at the second stop half of them get off. How many are on the bus now?
{name} and {other} collect {thing}. Together they have {big}. {name} has {n} more than {other}. How many does each have?
It takes {name} {n} minutes to wash a car and {days} minutes to dry it. How many cars can {name} finish in {weeks} hours?
{name} paid ${big} for {n} {thing}. If each costs ${price} more next year, how much will {m} {thing} cost?
""".strip().split("\n")  # noqa: E501


def draw_problem(rng: random.Random) -> str:
    """One problem; its numbers are drawn alone, so that its answer may be odd."""
    return filled(rng.choice(_PROBLEMS), rng)
