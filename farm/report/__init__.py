"""A campaign's end as a terminal table, a one-page Markdown file and a figure."""
