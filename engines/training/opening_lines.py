"""The openings themselves, one a line, by family; `{blank}`s are filled from `opening_words`."""

from __future__ import annotations

_MATHS = """
{name} buys
{name} has
{name} is
{name} and {other} are
{name} wants to
{name} earns
A train
A {job}
If a {place}
There are {m} {thing}
The {place} has
In a class of {m} students,
{name} buys {n} {thing} for ${price} each
{name} buys {n} {thing} at ${price} each and pays with
{name} has {m} {thing}. She gives
{name} has {m} {thing}. He gives {n} of them to {other} and
{name} has {m} {thing}. {other} has {fraction} as many
{name} has {n} {thing} more than {other}. If
{name} is {n} years older than {other}. In
{name} is {m} years old. {other} is {fraction} of
{name} works as a {job} and earns ${price} an hour. Last week
{name} works {n} hours a day for {n} days a week. How
{name} drives at {m} miles per hour for {n} hours. Then
{name} runs {n} miles every day. How
{name} reads {m} pages of a book on Monday,
{name} saves ${price} every week. After
{name} bakes {m} {thing}. {other} takes {fraction} of them
{name} went to the {place} with ${m}. She bought
{name} went to the {place} and bought {n} {thing} and
A {place} sells {m} {thing} on Monday and {fraction} of that on Tuesday. How
A {place} sells {thing} for ${price} each. If {name} buys
A {place} has {m} rows of {n} {thing}. If
A {job} makes {n} {thing} a day and sells each for ${price}. How much
A box holds {m} {thing}. If
A car uses {n} litres of petrol for every {m} kilometres. How
A tank holds {m} gallons of water. It
A rectangle is {m} cm long and {n} cm wide. What
The price of a ticket to the {place} is ${price} for adults and
The sum of two numbers is {m}. One
The ratio of {thing} to {thing2} is
There are {m} students in a school. {fraction} of them
It takes {n} workers {m} days to
{n} friends share {m} {thing} equally. How
{name} and {other} share {m} {thing}. {name} gets
{name} spends {fraction} of his money on {thing} and
Each {job} needs {n} {thing}. There are {m}
Every morning {name} feeds {n}
Last year {name} had {m} {thing}. This year
On Monday {name} sold {n} {thing}. On Tuesday
How many {thing} does {name} have if
A recipe needs {n} cups of flour for {m} {thing}. How
Two trains leave
What is {m} * {n} +
Solve for x: {n}x + {m} =
Find the value of
Calculate the area of
What is {fraction} of
What is the probability that
If x + y = {m} and
If f(x) = {n}x
A die is rolled
Simplify
"""

_CODE = """
Write a Python function that
Write a Python function to {verb}
Write a Python program that
Write a function in {language} that
Write a function called {verb}_{noun} that
Write code to
Write a class
Write a SQL query
Write a regular expression
Write unit tests for
Write a script that
Implement a function
Implement {topic_code}
Given a list of integers, write
Given a string, write a function
Given an array of
Create a Python class
Create a simple {language} program
How do I {verb} a {noun} in {language}?
How can I
What does this code do?
What is wrong with this code?
Explain the following code:
Explain how {topic_code}
Fix the bug in this Python function:
Complete the following function
Complete the following function:
Convert this
Refactor
Optimise
def
def {verb}_{noun}(
I have a Python script
I'm getting an error
Develop a Python program that
Design an algorithm
Using Python,
In {language}, how
Solve the following programming problem:
What is the time complexity of
"""

# In the wording of a code-completion prompt; the target writes the docstring.
_STUBS = """
def {verb}_{noun}({args}):\\n    \"\"\"{docstring}
def {verb}_{noun}({args}) -> {result}:\\n    \"\"\"{docstring}
def {verb}_{noun}({args}) -> {result}:\\n    \"\"\" {docstring}
def {verb}_{noun}({args}):\\n    \"\"\"\\n    {docstring}
def {verb}_{noun}({args}):\\n    \"\"\" {sentence}\\n    >>> {verb}_{noun}(
def {verb}_{noun}({args}) -> {result}:\\n    \"\"\"{sentence}\\n    >>> {verb}_{noun}(
def {verb}_{noun}({args}) -> {result}:\\n    \"\"\"\\n    {sentence}\\n\\n    For example:
def {verb}_{noun}({args}):\\n    \"\"\"{sentence}
def {noun}({args}):\\n    \"\"\"{docstring}
from typing import List\\n\\n\\ndef {verb}_{noun}({args}) -> {result}:\\n    \"\"\" {docstring}
import math\\n\\n\\ndef {verb}_{noun}({args}):\\n    \"\"\"{docstring}
def
def {verb}_
"""

_CHAT = """
Write a {form} about {topic}
Write a {form} about
Write a {form} for
Write a persuasive {form}
Compose a {form}
Draft a professional email
Describe {topic} to
Describe a
Rewrite the following
Edit the following paragraph
Give me a list of
Give me some tips
Give three reasons
Imagine you are {person}.
Imagine you are {person}. How
Pretend to be {person} and
Act as {person}.
Act as {person}. I will
You are {person}. Explain
Suppose you are {person}
Can you take the role of
If you were {person},
Which is
Which word does not belong
Is it true that
If all
If it is raining
If you overtake
Suppose that
Consider the following
{name} is taller than {other}.
{name}'s father has
There are three
Which of these
Read the following passage and answer the question
Read the text below and
Extract the names
Extract the following information from the text
Given the following data,
Given the text, identify
Summarise the following
Summarize this article:
Classify the following
Identify the
Translate
Evaluate the following reviews
Put the following in a table
From the paragraph below, list
What is {topic}?
What is
What are the main causes of
What are the benefits of {topic}
What are the differences between
What are some
What would happen if
What causes
Why is {topic}
Why do
Why does
How does {topic} work
How does
How can I
How do I
How many
How would you explain {topic} to
Explain {topic} in simple terms
Explain the concept of
Explain how
Explain why
Explain the difference between
Describe the process of
Describe the structure of
Discuss {topic}
Discuss the
Compare {topic} and
Compare and contrast
Analyse
Provide an overview of
Provide insights into
Who was
Who
When did
Where
Tell me about {topic}
Tell me a story
Tell me a joke
Tell me
Can you explain
Can you help me
Can you recommend
Could you
Help me
I need help with
I want to
I am planning a trip to {place_name}
I'm
I have
My
Do you
Are there
Should I
Please
Plan a
Suggest
Recommend
Create a
Generate
List
Name
Define
Hi
Hello
Thanks
Let's
Let's play
A
The
In
Some people think
Make a
Plan a three day trip to {place_name}
What should I see in {place_name}
Design an experiment
What is the chemical
How fast
State
"""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.replace("\\n", "\n") for line in text.strip().split("\n"))


OPENINGS = {"maths": _lines(_MATHS), "code": _lines(_CODE), "chat": _lines(_CHAT)}
STUBS = _lines(_STUBS)
